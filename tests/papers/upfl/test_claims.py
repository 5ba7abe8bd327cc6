"""Verdicts on UPFL's printed cells, with the numbers that the tables give by hand."""

import pandas as pd
import pytest

from fedlib.published.ledger import ledger

HOLDS = ["U4", "U5", "U7", "U8", "U9", "U13"]
FAILS = ["U2"]
UNDECIDED = ["U1", "U3"]
NO_TABLE = ["U6", "U10", "U11", "U12", "U14", "F2", "F3", "F4", "F5", "AF2"]


def test_verdicts(printed):
    states = {claim: verdict.state for claim, verdict in printed["upfl"].items()}
    expected = {"holds": HOLDS, "fails": FAILS, "undecided": UNDECIDED, "not run": NO_TABLE}
    assert states == {claim: state for state, claims in expected.items() for claim in claims}


@pytest.mark.parametrize(("claim", "counts"), [("U1", (5, 10)), ("U2", (3, 5)), ("U3", (7, 9)), ("U8", (20, 20)), ("U9", (6, 6))])
def test_counts(printed, count, claim, counts):
    assert count(printed["upfl"][claim]) == counts


@pytest.mark.parametrize(
    ("claim", "texts"),
    [
        ("U1", ["(+0.17", "(+1.61", "(+0.80", "(+0.99", "(+1.34"]),
        ("U2", ["FedTTA-Prox 1.90 > 1", "FedTTA-Prox 6.43 > 1", "FedTTA-Prox 1.88 > 1", "FedTTA-Prox 0.02 > 1"]),
        ("U3", ["Tent 8.85 > 0", "SCAFFOLD -5.10 > 0", "Tent 10.84 > 0", "Tent 1.50 > 0", "Tent 0.15 > 0"]),
        ("U5", ["Tent 74.46"]),
        ("U7", ["PFL-Sampled 23.41"]),
        ("U9", ["(+3.01", "(+1.20", "(+2.30", "(+1.63", "(+2.61", "(+3.63"]),
    ],
)
def test_numbers(printed, claim, texts):
    findings = [finding.text for finding in printed["upfl"][claim].findings]
    assert all(any(text in finding for finding in findings) for text in texts)


def test_scaffold_fails_on_fashion_mnist_only(printed):
    (finding,) = printed["upfl"]["U13"].findings
    assert finding.text.startswith("most: 4 of 5")
    for lead in ("(+1.25", "(+2.94", "(+1.61", "(+1.91", "FedADG 87.96 (-0.68 ± 0.10) FAILS"):
        assert lead in finding.text


def test_the_suspect_femnist_cell_is_named_and_decides_nothing(printed):
    verdict = printed["upfl"]["U3"]
    assert "suspect print: T1 femnist convnet natural test FedTTA++" in verdict.evidence
    assert [f.state for f in verdict.findings if "SCAFFOLD -5.10 > 0" in f.text] == ["undecided"]


def test_figure_2_is_judged_on_the_mean_of_the_clients():
    """The first client peaks with its entropy's minimum, as in print; the two others only rise."""

    def client(k, accuracy, entropy):
        curves = {"accuracy": accuracy, "loss": entropy, "entropy": entropy}
        return [(k, step, column, value) for column, values in curves.items() for step, value in enumerate(values)]

    peak, rise = (0.0, 9.0, 3.0, 1.0, 0.0, 0.0), (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)
    dip, fall = (5.0, 0.0, 4.0, 5.0, 5.0, 5.0), (5.0, 4.0, 3.0, 2.0, 1.0, 0.0)
    source = {"n_seeds": 1, "run_dataset": "digits", "run_model": "mlp", "status": "stand-in"}
    frame = pd.DataFrame(
        [*client(0, peak, dip), *client(1, rise, fall), *client(2, rise, fall)], columns=["client", "step", "column", "mean"]
    ).assign(**source)
    for shown, verdict in ((frame[frame["client"] == 0], "holds on "), (frame, "undecided on ")):
        several = shown.assign(n_seeds=3, status="ok")
        assert ledger("upfl", {}, {"F2": several}).set_index("claim").loc["F2", "verdict"].startswith(verdict)
        assert ledger("upfl", {}, {"F2": shown}).set_index("claim").loc["F2", "ours"] == "undecided", "a curve of one seed"
