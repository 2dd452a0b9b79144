"""Gives a torch model the seed's random weights: the same numbers, under the same names, as its ONNX twin."""

from __future__ import annotations

import torch
from torch import Tensor

from edgefront.core.graph.formats import RANDOM_SCALE, Format, format_of, is_linear_map
from edgefront.core.graph.parameter import ParameterSpec
from edgefront.core.graph.parameters import parameters
from edgefront.core.graph.weights import WeightCache, values
from edgefront.core.nn.int8 import use_int8
from edgefront.core.nn.model import LanguageModel
from edgefront.core.number_formats import Quantisation


def fill(
    model: LanguageModel,
    seed: int,
    cache: WeightCache | None = None,
    *,
    dtype: str = "float32",
    quantisation: Quantisation = "full",
    with_memory: bool = False,
) -> LanguageModel:
    """Sets every parameter of `model` from `seed`; returns the model.

    With a cache the parameters become views on its files, mapped copy-on-write: nothing is read or copied until it is
    used, and training such a model changes no file. The model is then on the CPU, in the `dtype` asked for. Without one
    the values are computed and copied into the model's own memory, whatever its type and device.

    `quantisation` int8 needs a cache, and makes the model one for inference (`core.nn.int8`, also for `with_memory`).
    """
    specs = parameters(model.architecture)
    if cache is None:
        own = dict(model.named_parameters())
        with torch.no_grad():
            for spec in specs:
                own[spec.name].copy_(torch.from_numpy(values(spec, seed)))
        return model
    cache.touch(seed)
    tensors = {
        spec.name: _tensor(cache, spec, seed, format_of(spec.name, dtype, "full"))
        for spec in specs
        if quantisation == "full" or not is_linear_map(spec.name)
    }
    model.load_state_dict(tensors, assign=True, strict=quantisation == "full")
    if quantisation == "int8":
        by_name = {spec.name: spec for spec in specs}
        use_int8(model, lambda name: (_tensor(cache, by_name[name], seed, "s7"), RANDOM_SCALE), with_memory=with_memory)
    return model


def _tensor(cache: WeightCache, spec: ParameterSpec, seed: int, kind: Format) -> Tensor:
    """The mapped parameter; bits of bfloat16 as that."""
    tensor = torch.from_numpy(cache.array(spec, seed, kind))
    return tensor.view(torch.bfloat16) if kind == "bf16" else tensor
