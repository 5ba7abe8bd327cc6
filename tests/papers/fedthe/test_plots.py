import pandas as pd

from fedlib.papers.fedthe import plots


def product(**values):
    return pd.MultiIndex.from_product(values.values(), names=values.keys()).to_frame(index=False)


def test_heatmaps_have_a_panel_per_test_and_print_every_cell():
    frame = product(column=["original", "ooc"], alpha=[0.1, 0.2], beta=[0.1, 0.3, 0.5])
    frame["mean"] = [10.0 + k for k in range(12)]
    figure = plots.heatmaps(frame, x="beta", y="alpha", title="T\nfacts")
    assert figure.texts[-1].get_text() == "facts\nAccuracy (%); colours from the lowest to the highest of each test."
    assert [axis.get_title() for axis in figure.axes] == ["original", "ooc"]
    assert [text.get_text() for text in figure.axes[1].texts] == [f"{16.0 + k}" for k in range(6)]


def test_interpolation_draws_the_shared_weights_and_the_others_as_levels():
    shared = product(setting=["Dir(0.1)", "Dir(1.0)"], weight=[0.0, 0.5, 1.0]).assign(method="shared", mean=[70.0, 80, 60, 65, 75, 72])
    levels = product(setting=["Dir(0.1)", "Dir(1.0)"], method=["oracle", "FedTHE"]).assign(mean=[85.0, 78, 84, 80])
    figure = plots.interpolation(pd.concat([shared, levels]), xlabel="weight")
    for axis, top in zip(figure.axes, (85.0, 84.0), strict=True):
        curve, oracle, own = axis.lines
        assert list(curve.get_xdata()) == [0.0, 0.5, 1.0]
        assert list(oracle.get_ydata()) == [top, top]
        assert own.get_label() == "FedTHE"


def test_embedding_marks_every_class_in_every_panel():
    frame = product(method=["with history", "without history"], label=[0, 3, 7]).assign(x=range(6), y=range(6))
    figure = plots.embedding(frame)
    assert [len(axis.collections) for axis in figure.axes] == [3, 3]
    assert [text.get_text() for text in figure.axes[-1].get_legend().get_texts()] == ["0", "3", "7"]
