import numpy as np
import pandas as pd

import fedlib
from fedlib.commands.pairs import main


def test_methods_that_were_run_apart_are_paired(run, tmp_path, capsys):
    first, second = run("first", {"FedTHE": 5, "FedTHE+": 7}), run("second", {"TSA": 0, "FedTHE": 40})
    found = fedlib.pairs(first, second, against="FedTHE").query("column == 'ooc'").set_index("method")
    assert found["difference"].round(9).to_dict() == {"FedTHE+": 2, "TSA": -5}, "FedTHE is the first folder's"
    assert np.isnan(found.loc["FedTHE+", "p"]), "every client gains as much, which tells no spread"
    main([str(first), str(second), "--against", "FedTHE", "--table", "T3", "--out", str(tmp_path / "out.csv")])
    said = capsys.readouterr().out
    assert "T3 cifar10 cnn Dir(0.1) ooc: cifar10\n" in said
    assert "  TSA - FedTHE: -5.00 +- 0.23, p 6.6e-15 over 20 clients\n" in said
    assert len(pd.read_csv(tmp_path / "out.csv")) == 12


def test_a_table_without_clients_is_left_out(run):
    first = run("first", {"FedTHE": 5, "TSA": 0}, more=("T9",))
    assert set(fedlib.pairs(first, against="FedTHE")["table"]) == {"T3"}
