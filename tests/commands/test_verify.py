import json

import pandas as pd
import pytest

from fedlib import published
from fedlib.commands.verify import compare, main
from fedlib.published.compare import fill


@pytest.fixture
def folders(tmp_path):
    """Two runs of ATP's Table 1 that share two cells, of which one differs by half a point."""
    common = {"setting": "feature shift", "column": "test", "std": 0.0, "n_seeds": 1, "n": 10, "run_dataset": "digits", "run_model": "cnn"}
    for name, tent in (("run", 70.5), ("reference", 70.0)):
        values = {"NoAdapt": 60.0, "Tent": tent} | ({"EM": 1.0} if name == "run" else {})
        rows = pd.DataFrame([common | {"method": m, "mean": v, "status": "stand-in"} for m, v in values.items()])
        frame = fill("atp", "T1", rows, reason="not asked for")[list(published.TABLE_COLUMNS)]
        (tmp_path / name).mkdir()
        frame.to_csv(tmp_path / name / "T1.csv", index=False)
        (tmp_path / name / "run.json").write_text(
            json.dumps({"date": "today", "processor": f"of the {name}", "commit": "abc", "seeds": [0]})
        )
    return tmp_path / "run", tmp_path / "reference"


def test_cells_that_both_ran_are_compared(folders):
    cells = compare(*folders).set_index("method")
    assert cells["agrees"].to_dict() == {"NoAdapt": True, "Tent": False}
    assert cells.loc["Tent", "difference"] == pytest.approx(0.5)
    assert compare(*folders, tolerances={"T1": 0.5})["agrees"].all()


def test_the_table_on_first_images_is_one_of_its_own(folders):
    for folder in folders:
        pd.read_csv(folder / "T1.csv").to_csv(folder / "T1_cut.csv", index=False)
    cells = compare(*folders, tolerances={"T1": 0.5}).set_index(["table", "method"])
    assert cells.loc["T1", "agrees"].to_dict() == {"NoAdapt": True, "Tent": True}
    assert cells.loc["T1_cut", "agrees"].to_dict() == {"NoAdapt": True, "Tent": False}


def test_the_command_says_what_differs_and_where_both_were_made(folders, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(list(map(str, folders)))
    assert stopped.value.code == 1
    out = capsys.readouterr().out
    assert "T1: 1 of 2 cells within 0.01, largest difference 0.5" in out
    assert "of the run, commit abc" in out
    assert "of the reference" in out
    main([*map(str, folders), "--table", "T1", "1"])
    assert "2 of 2" in capsys.readouterr().out


def test_folders_are_those_of_the_project_from_elsewhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["figures/digits/fedicon", "figures/digits/fedicon"])
    assert "no run.json" not in capsys.readouterr().out


@pytest.mark.parametrize(("column", "what"), [("run_dataset", "images: T1 ran on digits in"), ("run_model", "networks: T1 ran on cnn in")])
def test_runs_of_other_images_or_networks_are_not_compared(folders, column, what):
    path = folders[1] / "T1.csv"
    frame = pd.read_csv(path)
    frame.assign(**{column: frame[column].where(frame["mean"].isna(), "another")}).to_csv(path, index=False)
    with pytest.raises(ValueError, match=f"different {what.split(':')[0]}.*{what.split(': ')[1]}.*another in"):
        compare(*folders)


def test_wrong_folders_are_named(folders, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="empty holds no result table"):
        main([str(tmp_path / "empty"), str(folders[1])])
    with pytest.raises(SystemExit, match="a tolerance was given for T9, but both folders hold only T1"):
        main([*map(str, folders), "--table", "T9", "1"])
    with pytest.raises(SystemExit, match="a tolerance must be at least 0"):
        main([*map(str, folders), "--tolerance", "-1"])
    with pytest.raises(SystemExit, match="a tolerance must be at least 0"):
        main([*map(str, folders), "--tolerance", "nan"])
    other = folders[1] / "T1.csv"
    other.rename(folders[1] / "T2.csv")
    with pytest.raises(SystemExit, match="no table in common"):
        main(list(map(str, folders)))
