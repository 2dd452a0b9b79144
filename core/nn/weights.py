"""Sets the parameters of a torch model: from a seed (with the values of the ONNX model) or from a safetensors file."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from edgefront.core.architectures.parameters import ParameterSpec, parameters
from edgefront.core.common.number_formats import Quantisation
from edgefront.core.model_files.formats import RANDOM_SCALE, Format, WeightCache, format_of, is_linear_map
from edgefront.core.model_files.parameter_values import StoredValues
from edgefront.core.model_files.random_values import values
from edgefront.core.nn.blocks.attention import AttentionBlock
from edgefront.core.nn.layers import Linear
from edgefront.core.nn.model import LanguageModel

# Linear layers with int8 weights on the CPU, as `core.model_files.formats` defines them.
#
# They use the kernels (`torch.ops.quantized`) of `torch.ao.quantization.quantize_dynamic`. That function is deprecated
# and would compute its own int8 weights instead of using the weights of the ONNX builder.


class Int8Linear(nn.Module):
    """Linear layer with its weight packed for the CPU's int8 kernels; inputs are quantised at run time.

    `edges` are the bounds, from 0 to out, of row ranges that are packed separately; `rows` accepts only these bounds.
    """

    def __init__(self, weight: Tensor, scale: float, bias: Tensor | None, edges: Sequence[int]) -> None:
        super().__init__()
        self.edges = tuple(edges)
        self.out_features, self.in_features = weight.shape
        with warnings.catch_warnings():
            # torch's quantised types are deprecated, but packing still requires them.
            warnings.filterwarnings("ignore", category=UserWarning)
            self._parts = [
                torch.ops.quantized.linear_prepack(
                    torch._make_per_tensor_quantized_tensor(weight[low:high].contiguous(), scale, 0),
                    None if bias is None else bias[low:high].float(),
                )
                for low, high in pairwise(self.edges)
            ]

    def forward(self, x: Tensor) -> Tensor:
        return self.rows(x, 0, self.out_features)

    def rows(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Computes only the outputs `start` to `stop` - 1, two of the `edges`: [..., in] → [..., stop - start]."""
        # Inputs keep all eight bits (`reduce_range` off), as in ONNX Runtime: 7-bit weights leave room for the sums.
        first, last = self.edges.index(start), self.edges.index(stop)
        outputs = [torch.ops.quantized.linear_dynamic(x, part, False) for part in self._parts[first:last]]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)


def _use_int8(model: LanguageModel, cache: WeightCache, seed: int, *, with_memory: bool) -> None:
    """Replaces the weights of the blocks' linear layers by int8 weights of the cache; biases must be filled."""
    specs = {spec.name: spec for spec in parameters(model.architecture)}
    for name, module in list(model.named_modules()):
        if not (isinstance(module, Linear) and is_linear_map(f"{name}.weight")):
            continue
        owner = model.get_submodule(name.rpartition(".")[0])
        out = module.out_features
        apart = isinstance(owner, AttentionBlock) and name.endswith(".qkv") and (with_memory or owner.attends != "self")
        weight = _tensor(cache, specs[f"{name}.weight"], seed, "s7")
        edges = (0, owner.width, out) if apart else (0, out)
        setattr(owner, name.rpartition(".")[2], Int8Linear(weight, RANDOM_SCALE, module.bias, edges))


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

    With a cache the parameters become views of the cache's files, memory-mapped copy-on-write: pages are read when
    used, and training changes no file. The model is then on the CPU, in the requested `dtype`. Without a cache the
    values are computed and copied into the model's memory, of any type and on any device.

    `quantisation` int8 needs a cache, and limits the model to inference. `with_memory` is for an int8 model that runs
    segments after a memory: only keys and values of the memory are computed, so these are packed apart from queries.
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
        _use_int8(model, cache, seed, with_memory=with_memory)
    return model


def _tensor(cache: WeightCache, spec: ParameterSpec, seed: int, kind: Format) -> Tensor:
    """Memory-mapped parameter as a tensor; bfloat16 is read from its bits."""
    tensor = torch.from_numpy(cache.array(spec, seed, kind))
    return tensor.view(torch.bfloat16) if kind == "bf16" else tensor


def load_safetensors(path: Path | str) -> LanguageModel:
    """Loads the model of a file that `core.model_files.export` wrote: its architecture and its parameters.

    Raises the errors of `core.model_files.parameter_values.StoredValues`.
    """
    stored = StoredValues(path)
    return load(LanguageModel(stored.architecture), {name: torch.tensor(stored.arrays[name]) for name in stored.arrays})


def load(model: LanguageModel, weights: Mapping[str, Tensor]) -> LanguageModel:
    """Makes `weights`, by parameter name, the parameters of `model` (no copy); returns the model."""
    model.load_state_dict(dict(weights), assign=True)
    return model
