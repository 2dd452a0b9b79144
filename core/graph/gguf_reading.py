"""Reads a GGUF file: the description of its model, its weights as float32, and its tokenizer as Hugging Face's files.

A file that edgefront wrote contains its description. That of any other file is derived from its metadata and the names
of its tensors; unknown fields of its architecture, and tensors that belong to no parameter, are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from edgefront.core.errors import ArchitectureError, InvalidInput
from edgefront.core.graph.gguf_header import GgufHeader, StoredTensor, fault
from edgefront.core.graph.gguf_tokenizer import tokenizer_files
from edgefront.core.graph.parameters import parameters
from edgefront.core.graph.positions import rotary_frequencies
from edgefront.core.spaces.architecture import MAX_LAYER_PAIRS, Architecture
from edgefront.core.spaces.embeddings_and_head import MAX_CONTEXT, RotaryPositions
from edgefront.core.spaces.gguf import LOCAL_BASE, LOCAL_LAYERS, GgufKind, gguf_form
from edgefront.core.spaces.numbers import as_number, is_positive
from edgefront.core.validation import short

_READ_FIELDS = frozenset(
    {
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "vocab_size",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "attention.layer_norm_epsilon",
        "attention.sliding_window",
        "rope.dimension_count",
        "rope.freq_base",
        "use_parallel_residual",
        "shortconv.l_cache",
    }
)
"""Fields of an architecture that are read. A file with another field is refused; `rope.scaling.type` may be none."""
_OF_KIND = {"granite": frozenset({"attention.scale", "embedding_scale", "residual_scale", "logit_scale"})}
"""Fields that are read of one architecture alone."""
_KINDS = get_args(GgufKind)
_OF_LAYER_NORMS = {
    "gpt2": "gelu_tanh",
    "gptneox": "gelu",
    "stablelm": "silu",
    "phi2": "gelu_tanh",
    "bloom": "gelu_tanh",
}
"""Those with layer norms, and the activation of the models that they are made for."""


_STRETCHED = "rope_freqs.weight"


class GgufFile:
    """An open GGUF file. Raises `InvalidInput` if it is none, or if its model cannot be expressed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = GgufHeader(path)
        self._fields, self._tensors = self.header.fields, self.header.tensors
        self.architecture = self._architecture()

    def weights(self) -> Mapping[str, NDArray[np.float32]]:
        """The parameters under edgefront's names; every tensor of the file is one, or part of one."""
        return _Weights(self)

    # The description -----------------------------------------------------------------------------------------------

    def _architecture(self) -> Architecture:
        own = self._field("edgefront.architecture")
        try:
            return Architecture.parse(own if isinstance(own, str) else self._description())
        except ArchitectureError as error:
            raise self._fault(f"describes no model: {error.detail}", "path") from None

    def _description(self) -> dict[str, Any]:
        kind = self._field("general.architecture")
        if kind not in _KINDS:
            raise self._fault(
                f"is of architecture {kind}, which is not known; there are {', '.join(_KINDS)}", "general.architecture"
            )
        own = {name.removeprefix(f"{kind}."): self._field(name) for name in self._fields if name.startswith(f"{kind}.")}
        if own.get("rope.scaling.type") == "none":
            del own["rope.scaling.type"]
        for name in own:
            if name not in _READ_FIELDS | _OF_KIND.get(kind, frozenset()):
                raise self._fault(f"has {kind}.{name}, which is not known", f"{kind}.{name}")
        layers = self._count(own, kind, "block_count", MAX_LAYER_PAIRS)
        positions = {"gpt2": "learned", "bloom": "alibi"}.get(kind, "rotary")
        width = self._count(own, kind, "embedding_length")
        layer_normed = kind in _OF_LAYER_NORMS
        epsilon = "attention.layer_norm_epsilon" if layer_normed else "attention.layer_norm_rms_epsilon"
        description: dict[str, Any] = {
            "d_model": width,
            "norm_eps": str(self._positive(kind, epsilon, self._required(own, kind, epsilon))),
            "norm": {"olmo2": "branch", "gemma3": "both"}.get(kind, "pre"),
            "norm_kind": "layer" if layer_normed else "rms",
            "activation": "gelu_tanh" if kind == "gemma3" else _OF_LAYER_NORMS.get(kind, "silu"),
            "embedding": {
                "vocab_size": self._tensor("token_embd.weight").shape[0],
                "scaled": kind == "gemma3",
                "norm": kind == "bloom",
            },
            "blocks": [block for layer in range(layers) for block in self._layer(own, kind, layer, layers, width)],
            "output": {
                "kind": "tokens",
                "tied": "output.weight" not in self._tensors,
                "bias": "output.bias" in self._tensors,
            },
        }
        if kind == "granite":
            description["residual_multiplier"] = self._multiplier(own, kind, "residual_scale")
            description["embedding"]["multiplier"] = self._multiplier(own, kind, "embedding_scale")
            description["output"]["logits_scaling"] = self._multiplier(own, kind, "logit_scale")
        if positions == "learned":
            length = self._tensor("position_embd.weight").shape[0]
            description |= {"positions": {"kind": "learned", "length": length}}
            return description
        description["positions"] = {"kind": positions}
        description["context_length"] = self._count(own, kind, "context_length")
        if positions == "rotary":
            base = float(self._positive(kind, "rope.freq_base", own.get("rope.freq_base", 10_000.0)))
            theta: Any = int(base) if base == int(base) else base
            description["positions"] = {
                "kind": "rotary",
                "theta": theta,
                "percent": self._percent(own, kind, description),
            }
            self._stretch(description)
        return description

    def _layer(
        self, own: Mapping[str, Any], kind: str, layer: int, layers: int, width: int
    ) -> Iterator[dict[str, Any]]:
        def of_layer(name: str, default: int | None = None) -> int:
            value = own.get(name, default)
            if isinstance(value, list):
                if len(value) != layers:
                    raise self._fault(f"has {kind}.{name} of {len(value)} layers, not {layers}", f"{kind}.{name}")
                value = value[layer]
            return self._count({} if value is None else {name: value}, kind, name)

        prefix = f"blk.{layer}."
        if f"{prefix}shortconv.conv.weight" in self._tensors:
            yield {"kind": "short_conv", "kernel": self._count(own, kind, "shortconv.l_cache")}
        elif f"{prefix}attn_output.weight" in self._tensors:
            heads = of_layer("attention.head_count")
            d_head = self._count({"attention.key_length": width // heads, **own}, kind, "attention.key_length")
            if own.get("attention.value_length", d_head) != d_head:
                name = "attention.value_length"
                raise self._fault(f"has {kind}.{name} {own[name]}, not the width {d_head} of its heads", name)
            yield {
                "kind": "attention",
                "n_head": heads,
                "n_kv_head": of_layer("attention.head_count_kv", heads),
                "d_head": d_head,
                "bias": self._bias(prefix),
                "rope": kind != "smollm3" or (layer + 1) % 4 > 0,
                "qk_norm": f"{prefix}attn_q_norm.weight" in self._tensors and ("whole" if kind == "olmo2" else True),
                "scale": None if "attention.scale" not in own else self._multiplier(own, kind, "attention.scale"),
                **self._local(own, kind, layer),
            }
        if f"{prefix}ffn_down.weight" in self._tensors:
            yield {
                "kind": "feed_forward",
                "d_inner": of_layer("feed_forward_length"),
                "gated": f"{prefix}ffn_gate.weight" in self._tensors,
                "bias": f"{prefix}ffn_down.bias" in self._tensors,
                "parallel": self._parallel(own, prefix),
            }

    def _local(self, own: Mapping[str, Any], kind: str, layer: int) -> dict[str, Any]:
        """The window of a layer, and in Gemma 3 the rotary base where there is one: in all but every sixth layer."""
        window = own.get("attention.sliding_window") or None
        if kind != "gemma3" or window is None:
            return {"window": window}
        return {"window": window, "theta": LOCAL_BASE} if (layer + 1) % LOCAL_LAYERS else {}

    def _percent(self, own: Mapping[str, Any], kind: str, description: Mapping[str, Any]) -> int:
        """Share of each head that is rotated: all of it but in the kinds that have layer norms."""
        name = "rope.dimension_count"
        d_head = next((block["d_head"] for block in description["blocks"] if block["kind"] == "attention"), 1)
        turned = own.get(name, d_head)
        if turned == d_head:
            return 100
        if kind not in _OF_LAYER_NORMS or type(turned) is not int or not 0 < turned < d_head:
            raise self._fault(f"has {kind}.{name} {short(turned)}, not the width {d_head} of its heads", name)
        return -(-100 * turned // d_head)  # which, rounded down, are so many features again

    def _stretch(self, description: dict[str, Any]) -> None:
        """Positions that turn slower by `rope_freqs.weight` as Llama 3.1's, whose lengths and limits it does not tell:
        they are those of all its models (`RotaryScaling`), or the file is refused.
        """
        if _STRETCHED not in self._tensors:
            return
        slower = self.tensor(_STRETCHED)
        d_head = next(block["d_head"] for block in description["blocks"] if block["kind"] == "attention")
        plain = {"kind": "rotary", "theta": description["positions"]["theta"]}
        most = float(slower.max())
        scaling = {"factor": int(most) if most == int(most) else str(np.float32(most))}
        expected = rotary_frequencies(RotaryPositions.model_validate(plain), d_head) / rotary_frequencies(
            RotaryPositions.model_validate({**plain, "scaling": scaling}), d_head
        )
        if expected.shape != slower.shape or not np.allclose(slower, expected, rtol=1e-5):
            raise self._fault(f"has {_STRETCHED}, which does not stretch positions as Llama 3.1 does", "positions")
        description["positions"]["scaling"] = scaling

    def _parallel(self, own: Mapping[str, Any], prefix: str) -> str | None:
        norms = (f"{prefix}ffn_norm.weight", f"{prefix}post_ffw_norm.weight")
        if not any(name in self._tensors for name in norms):
            return "shared_norm"
        return "own_norm" if own.get("use_parallel_residual") is True else None

    def _bias(self, prefix: str) -> str:
        if f"{prefix}attn_output.bias" in self._tensors:
            return "all"
        names = (f"{prefix}attn_q.bias", f"{prefix}attn_qkv.bias")
        return "qkv" if any(name in self._tensors for name in names) else "none"

    def tokenizer(self) -> dict[str, bytes]:
        """Its `tokenizer.json` and what goes beside it (`core.graph.gguf_tokenizer`)."""
        return tokenizer_files(self.header)

    # The weights ---------------------------------------------------------------------------------------------------

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Its values as float32, whatever format they have."""
        import gguf

        stored = self._tensor(name)
        size = stored.nbytes
        try:
            if size is None:
                raise NotImplementedError
            data = np.fromfile(stored.path, np.uint8, size, offset=stored.start)
            rows = data.reshape(math.prod(stored.shape[:-1]), -1)
            values = gguf.dequantize(rows, gguf.GGMLQuantizationType(stored.kind))
        except NotImplementedError:
            raise self._fault(
                f"has {name} as {stored.kind_name}, which the installed gguf cannot read", "weights"
            ) from None
        return np.asarray(values, np.float32).reshape(stored.shape)

    @property
    def names(self) -> set[str]:
        return set(self._tensors)

    def _field(self, name: str, default: Any = None) -> Any:
        return self._fields.get(name, default)

    def _tensor(self, name: str) -> StoredTensor:
        if name not in self._tensors:
            raise self._fault(f"lacks {name}", "weights")
        return self._tensors[name]

    def _required(self, own: Mapping[str, Any], kind: str, name: str) -> Any:
        if name not in own:
            raise self._fault(f"lacks {kind}.{name}", f"{kind}.{name}")
        return own[name]

    def _count(self, own: Mapping[str, Any], kind: str, name: str, maximum: int = MAX_CONTEXT) -> int:
        value = self._required(own, kind, name)
        if type(value) is not int or not 1 <= value <= maximum:
            raise self._fault(f"has {kind}.{name} {short(value)}: it must be 1 to {maximum}", f"{kind}.{name}")
        return value

    def _multiplier(self, own: Mapping[str, Any], kind: str, name: str) -> int | str:
        """1 where the file does not have it; the shortest number that is this float32."""
        return as_number(float(str(self._positive(kind, name, own.get(name, 1)))))

    def _positive(self, kind: str, name: str, value: Any) -> np.float32:
        if not is_positive(value):
            raise self._fault(f"has {kind}.{name} {short(value)}: it must be a positive number", f"{kind}.{name}")
        rounded: np.float32 = np.float32(value)
        return rounded

    def _fault(self, what: str, field: str) -> InvalidInput:
        return fault(self.path, what, field)


class _Weights(Mapping[str, NDArray[np.float32]]):
    def __init__(self, file: GgufFile) -> None:
        from edgefront.core.graph.gguf_tensors import GgufTensor, tensors

        self._file = file
        architecture = file.architecture
        self._parts: dict[str, list[GgufTensor]] = {spec.name: [] for spec in parameters(architecture)}
        self._shapes = {spec.name: spec.shape for spec in parameters(architecture)}
        read = set()
        for tensor, _ in tensors(architecture, gguf_form(architecture), "float32"):
            read.add(tensor.name)
            if tensor.spec is not None:
                stored = file._tensor(tensor.name)
                if stored.shape != tensor.shape:
                    raise file._fault(f"has {tensor.name} of shape {stored.shape}, not {tensor.shape}", "weights")
                self._parts[tensor.spec.name].append(tensor)
        for name in sorted(file.names - read):
            raise file._fault(f"has {name}, which is not a parameter of its architecture", "weights")

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        shape = self._shapes[name]
        flat = np.zeros((shape[0], int(np.prod(shape[1:]))), np.float32)
        for tensor in self._parts[name]:
            values = self._file.tensor(tensor.name)
            rows = values.T if tensor.transposed else values
            flat[slice(None) if tensor.rows is None else tensor.rows] = rows.reshape(-1, flat.shape[1])
        return flat.reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)
