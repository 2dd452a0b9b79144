"""Gives a torch model the seed's random weights: the same numbers, under the same names, as its ONNX twin."""

from __future__ import annotations

import torch

from core.graph.parameters import parameters
from core.graph.weights import WeightCache, values
from core.nn.model import LanguageModel


def fill(model: LanguageModel, seed: int, cache: WeightCache | None = None) -> LanguageModel:
    """Sets every parameter of `model` from `seed`; returns the model.

    With a cache the parameters become views on its files, mapped copy-on-write: nothing is read or copied until it is
    used, and training such a model changes no file. Then the model has to be float32 and on the CPU. Without one the
    values are computed and copied into the model's own memory, whatever its type and device.
    """
    specs = parameters(model.architecture)
    if cache is None:
        own = dict(model.named_parameters())
        with torch.no_grad():
            for spec in specs:
                own[spec.name].copy_(torch.from_numpy(values(spec, seed)))
        return model
    cache.touch(seed)
    model.load_state_dict({spec.name: torch.from_numpy(cache.array(spec, seed)) for spec in specs}, assign=True)
    return model
