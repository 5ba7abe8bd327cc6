import json
import re

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from fedlib.results import write_claims, write_figure, write_numbers, write_run
from fedlib.results.pages import write_indices


@pytest.fixture
def results(tmp_path):
    """Two runs with a figure each, claims in one, and a folder that holds no run."""
    frame = pd.DataFrame({"x": [0, 1], "mean": [50.0, 60.0]})
    for name in ("first", "second"):
        for figure in ("F10", "F2a"):
            drawn, axis = plt.subplots()
            axis.plot(frame["x"], frame["mean"])
            write_figure(drawn, frame, tmp_path / name, figure, f"Figure {figure[1:]}: a < b\ndigits, 1 seed")
            plt.close(drawn)
        write_numbers(frame, tmp_path / name, "hyperparameters")
        if name == "first":
            claims = {"claim": "X1", "text": "x", "published": "holds", "ours": "undecided", "verdict": "undecided", "evidence": "none"}
            write_claims(pd.DataFrame([claims]), tmp_path / name)
        write_run(
            tmp_path / name, profile="smoke", seeds=[0], device="cpu", duration_seconds=1, cache_hits=0, accounts=[], dataset="digits"
        )
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_every_link_leads_to_a_file_and_every_result_has_a_link(results):
    write_indices(results)
    assert not (results / "empty" / "index.html").exists()
    for page in results.rglob("index.html"):
        text = page.read_text()
        targets = re.findall(r'(?:href|src)="([^"]+)"', text)
        assert all((page.parent / target).exists() for target in targets)
        if page.parent != results:
            made = {path.name for path in page.parent.iterdir() if path.suffix in (".csv", ".tex", ".png", ".json")}
            assert made <= set(targets)


def test_what_another_run_left_stands_apart(results):
    (results / "first" / "old.csv").write_text("x\n1\n")
    (results / "first" / "hyperparameters.csv").write_text("x\n2\n")
    run = json.loads((results / "first" / "run.json").read_text())
    (results / "first" / "run.json").write_text(json.dumps(run | {"not_made": {"T9": "not run: a < b"}}))
    write_indices(results)
    page = (results / "first" / "index.html").read_text()
    of_this, apart = page.split("<h2>Of another run, or made beside this one</h2>")
    assert "old.csv" not in of_this
    assert "hyperparameters.csv" not in of_this
    assert apart.count("<li>") == 2
    assert "<h2>Asked for and not made</h2><ul><li>T9: not run: a &lt; b</li></ul>" in page.replace("\n", "")
    assert "Of another run" not in (results / "second" / "index.html").read_text()


def test_the_page_of_a_profile_says_how_each_run_was_made_and_what_its_claims_came_to(results):
    write_indices(results)
    text = (results / "index.html").read_text()
    assert "first/index.html" in text
    assert "second/index.html" in text
    assert "digits, profile smoke, seeds 0, 20" in text
    assert "1 undecided" in text


def test_figures_stand_in_the_order_of_their_numbers_with_their_captions(results):
    write_indices(results)
    text = (results / "first" / "index.html").read_text()
    assert text.index("F2a.png") < text.index("F10.png")
    assert "Figure 10: a &lt; b<br>digits, 1 seed" in text


def test_what_an_interrupted_run_left_half_written_is_no_result(results):
    for name in (".F1-00.png", ".T1-0123abcd.csv", ".T1-0123abcd.tex"):
        (results / "first" / name).write_text("half")
    write_indices(results)
    assert "0123abcd" not in (results / "first" / "index.html").read_text()
