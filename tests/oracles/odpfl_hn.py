"""ODPFL-HN's encoder, trunk and output layers written out for the plain toy network."""

import torch


def network_for(task, model, images):
    """Encoder, mean, trunk and output layers by hand for the plain toy network."""
    flat = task.inputs(images).flatten(1)
    features = torch.tanh(flat @ model["encoder.0.1.weight"].T + model["encoder.0.1.bias"])
    h = (features @ model["encoder.1.weight"].T + model["encoder.1.bias"]).mean(0)
    for i in (0, 2, 4, 6):
        h = model[f"trunk.{i}.weight"] @ (torch.relu(h) if i else h) + model[f"trunk.{i}.bias"]
    shapes = dict(task.model.named_parameters())
    return {n: (model[f"out.{n}.weight"] @ h + model[f"out.{n}.bias"]).view(t.shape) for n, t in shapes.items()}
