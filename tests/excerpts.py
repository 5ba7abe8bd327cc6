"""Excerpts of the published codes' outputs, kept as text in the tests."""

import torch


def numbers(text, *shape):
    """The numbers of ``text`` as float64 of ``shape``."""
    return torch.tensor([float(number) for number in text.split()], dtype=torch.float64).reshape(shape)
