import pandas as pd

from fedlib.papers.upfl import PAPER
from fedlib.results import check_table
from fedlib.study import Study
from tests.papers.upfl.test_settings import given


def test_the_tables_count_the_kits_own_clients_and_networks():
    study = Study(PAPER, given(clients=10))
    at1, at2, at3 = (study.frame(name) for name in ("AT1", "AT2", "AT3"))
    for table in (at1, at2, at3):
        check_table(table)
        assert table["mean"].notna().all()
    counts = at1[at1["dataset"] == "mnist"].set_index("column")["mean"]
    assert counts.to_dict() == {"classes": 10, "clients": 10, "samples": 1797, "samples_per_client": 180}
    assert at2["mean"].tolist()[0] == 5
    assert at2[at2["column"] == "samples"]["mean"].sum() == 1000
    pd.testing.assert_series_equal(at3["mean"], at3["published_mean"], check_names=False)
    assert set(at3["status"]) == {"ok"}


def test_rotated_images_need_those_of_mnist():
    table = Study(PAPER, given(dataset="cifar10_jpeg")).frame("AT2")
    check_table(table)
    assert table["status"].str.startswith("not run").all()
