"""A section that explores cached results: one test image with the class scores of every stage of a method, and controls to choose it."""

import base64
import io

import ipywidgets as widgets
import matplotlib.pyplot as plt
import torch
from IPython.display import display
from matplotlib.figure import Figure
from torch import Tensor

from fedlib.explore import Cases, Seen
from fedlib.plots.style import BLUE, GREY, ORANGE, heading

MOST_CLASSES = 10


def picture(seen: Seen, index: int, about: str = "") -> Figure:
    """The image, enlarged without smoothing, and one panel of class probabilities (softmax of the scores) per stage of the method.

    The bar of the decision is blue if it is right and orange if it is wrong. Of many classes the true one, those decided for and the most
    probable are shown. about: what was run on which data, for the small type below.
    """
    image, label = seen.samples.images[index], int(seen.samples.labels[index])
    probabilities = torch.stack([output.scores[index].double().softmax(0) for output in seen.stages.values()])
    shown = _shown(probabilities, label)
    figure, axes = plt.subplots(1, 1 + len(probabilities), figsize=(2.4 + 2.3 * len(probabilities), 3.1), layout="constrained")
    axes[0].imshow(image.permute(1, 2, 0).squeeze(2).numpy(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axes[0].set(title=f"true label: {seen.classes[label]}", xticks=[], yticks=[])
    axes[0].grid(visible=False)
    for axis, name, values in zip(axes[1:], _names(seen, index), probabilities, strict=True):
        decision = int(values.argmax())
        colours = [(BLUE if c == label else ORANGE) if c == decision else GREY for c in shown]
        axis.barh([seen.classes[c] for c in shown], values[shown].numpy(), color=colours)
        axis.set(title=f"{name}\n{_verdict(seen, decision, label)}", xlabel="softmax of the scores", xlim=(0, 1), xticks=(0, 0.5, 1))
        axis.grid(axis="y", visible=False)
    decided = _verdict(seen, int(probabilities[-1].argmax()), label)
    heading(figure, f"{seen.where}, image {index + 1} of {len(seen.samples)}: {list(seen.stages)[-1]} {decided}\n{about}")
    return figure


def controls(cases: Cases, about: str = "") -> widgets.VBox:
    """Choices of setting, seed, method (the last one first), column, client and image above the ``picture`` that they select."""
    options = {
        "setting": [setting.label for setting in cases.settings],
        "seed": list(cases.seeds),
        "method": list(cases.recipes)[::-1],
        "column": cases.columns(),
    }
    chosen = {name: widgets.Dropdown(options=values, description=name) for name, values in options.items()}

    def streams():
        return cases.streams(**{name: control.value for name, control in chosen.items()})

    client = widgets.Dropdown(options=list(streams()), description="client")
    image = widgets.IntSlider(min=1, max=1, description="image", continuous_update=False)
    # As wide as it was drawn: a box stretches what it holds to the width of the page.
    view = widgets.Image(format="png", layout=widgets.Layout(align_self="flex-start", max_width="100%"))

    def update(_=None):
        seen = streams()
        # A column has clients of its own and a client images of its own; a choice that is gone becomes the first client, the last image.
        client.options = list(seen)
        image.max = len(seen[client.value].samples)
        view.value = _png(picture(seen[client.value], image.value - 1, about))

    update()
    for control in (*chosen.values(), client, image):
        control.observe(update, "value")
    varied = [control for control in chosen.values() if len(control.options) > 1]
    return widgets.VBox([widgets.HBox([*varied, client, image], layout=widgets.Layout(flex_flow="row wrap")), view])


def show(cases: Cases, about: str = "") -> None:
    """Display the controls; where no kernel answers, as in an exported page, the picture of the first image stands in their place."""
    if not cases.settings or not cases.recipes:
        print("not run: left out by the parameters of this run")
        return
    box = controls(cases, about)
    still = base64.b64encode(box.children[-1].value).decode()
    display(box._repr_mimebundle_() | {"image/png": still}, raw=True)


def _shown(probabilities: Tensor, label: int) -> list[int]:
    """Numbers of the classes to show, in order: the true one, those decided for, then by highest probability; from [stages, classes]."""
    first = [label, *probabilities.argmax(1).tolist()]
    by_probability = probabilities.amax(0).argsort(descending=True).tolist()
    return sorted(list(dict.fromkeys(first + by_probability))[:MOST_CLASSES])


def _names(seen: Seen, index: int) -> list[str]:
    """Names of the stages; those of two heads with the weight that the method gives each."""
    names, weight = list(seen.stages), list(seen.stages.values())[-1].extras.get("weight")
    if weight is None:
        return names
    e = float(weight[index])
    return [f"{names[0]}, e = {e:.2f}", f"{names[1]}, 1 - e = {1 - e:.2f}", *names[2:]]


def _verdict(seen: Seen, decision: int, label: int) -> str:
    return f"predicts {seen.classes[decision]}: {'right' if decision == label else 'wrong'}"


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    plt.close(figure)
    return buffer.getvalue()
