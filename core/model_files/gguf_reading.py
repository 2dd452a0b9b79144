"""Reads a GGUF file: the description of its model, its weights as float32, and its tokenizer as Hugging Face's files.

Files written by edgefront contain the description. The description of other files follows from the fields and the rules
of the architecture (`KIND_RULES`); as in llama.cpp, the presence of tensors decides only about biases and a separate
output. Fields are required or have defaults as in llama.cpp (`llama_model::load_hparams`, 2026.10). Unknown fields,
missing tensors, and tensors without a parameter raise an error that names the field or tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import MAX_LAYER_PAIRS, Architecture
from edgefront.core.architectures.embeddings_and_head import MAX_CONTEXT, RotaryPositions
from edgefront.core.architectures.gguf import KIND_RULES, LOCAL_BASE, LOCAL_LAYERS, GgufKind, KindRules, gguf_form
from edgefront.core.architectures.numbers import as_number, is_positive
from edgefront.core.architectures.parameters import parameters
from edgefront.core.common.errors import ArchitectureError, InvalidInput
from edgefront.core.common.validation import short
from edgefront.core.model_files.gguf_header import GgufHeader, StoredTensor, fault
from edgefront.core.model_files.gguf_tokenizer import tokenizer_files
from edgefront.core.model_files.parameter_values import not_finite
from edgefront.core.model_files.positions import rotary_frequencies

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
        "rope.freq_base_swa",
        "use_parallel_residual",
        "shortconv.l_cache",
    }
)
"""Supported fields. A file with another field is refused, except `rope.scaling.type` none."""
_OF_KIND = {"granite": frozenset({"attention.scale", "embedding_scale", "residual_scale", "logit_scale"})}
"""Additional supported fields of single architectures."""
_KINDS = get_args(GgufKind)
_ROPE_FREQS = "rope_freqs.weight"


class GgufFile:
    """A GGUF file. Raises `InvalidInput` if the file is not GGUF, or if a description cannot express its model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = GgufHeader(path)
        self._fields, self._tensors = self.header.fields, self.header.tensors
        own = self._fields.get("edgefront.architecture")
        try:
            self.architecture = Architecture.parse(own if isinstance(own, str) else self._description())
        except ArchitectureError as error:
            raise self._fault(f"does not describe a valid model: {error.detail}", "path") from None

    def weights(self) -> Mapping[str, NDArray[np.float32]]:
        """Parameters by name; every tensor of the file must be a parameter or rows of a parameter."""
        return _Weights(self)

    # The description -----------------------------------------------------------------------------------------------

    def _description(self) -> dict[str, Any]:
        kind: Any = self._fields.get("general.architecture")
        if kind not in _KINDS:
            raise self._fault(
                f"is of the unknown architecture {kind}; it must be one of {', '.join(_KINDS)}", "general.architecture"
            )
        own = {
            name.removeprefix(f"{kind}."): self._fields.get(name)
            for name in self._fields
            if name.startswith(f"{kind}.")
        }
        if own.get("rope.scaling.type") == "none":
            del own["rope.scaling.type"]
        for name in own:
            if name not in _READ_FIELDS | _OF_KIND.get(kind, frozenset()):
                raise self._fault(f"has the unknown field {kind}.{name}", f"{kind}.{name}")
        rules = KIND_RULES[kind]
        layers = self._count(own, kind, "block_count", MAX_LAYER_PAIRS)
        width = self._count(own, kind, "embedding_length")
        length = self._count(own, kind, "context_length")
        epsilon = f"attention.layer_norm_{'rms_' if rules.norm_kind == 'rms' else ''}epsilon"
        description: dict[str, Any] = {
            "d_model": width,
            "norm_eps": str(self._positive(kind, epsilon, self._required(own, kind, epsilon))),
            "norm": rules.norm,
            "norm_kind": rules.norm_kind,
            "activation": rules.activations[0],
            "embedding": {"vocab_size": self._vocab_size(own, kind), "scaled": rules.scaled},
            "blocks": [block for layer in range(layers) for block in self._layer(own, kind, layer, layers, width)],
            "output": {
                "kind": "tokens",
                # llama.cpp uses the embedding if there is no output tensor.
                "tied": True in rules.tied and "output.weight" not in self._tensors,
                "bias": rules.output_bias,
            },
        }
        if kind == "granite":
            description["residual_multiplier"] = self._multiplier(own, kind, "residual_scale")
            description["embedding"]["multiplier"] = self._multiplier(own, kind, "embedding_scale")
            self._required(own, kind, "logit_scale")
            description["output"]["logits_scaling"] = self._multiplier(own, kind, "logit_scale")
        if rules.positions == "learned":
            description |= {"positions": {"kind": "learned", "length": length}}
            return description
        base = float(self._positive(kind, "rope.freq_base", own.get("rope.freq_base", 10_000.0)))
        theta: Any = int(base) if base == int(base) else base
        positions = {"kind": "rotary", "theta": theta, "percent": self._percent(own, kind, description)}
        description |= {"positions": positions, "context_length": length}
        self._scale_positions(description)
        return description

    def _vocab_size(self, own: Mapping[str, Any], kind: str) -> int:
        """Number of tokens in the tokenizer; if missing, the declared number, or the rows of the embedding."""
        tokens = self._fields.get("tokenizer.ggml.tokens")
        if isinstance(tokens, list) and tokens:
            return len(tokens)
        return self._count({"vocab_size": self._tensor("token_embd.weight").shape[0], **own}, kind, "vocab_size")

    def _layer(
        self, own: Mapping[str, Any], kind: GgufKind, layer: int, layers: int, width: int
    ) -> Iterator[dict[str, Any]]:
        def of_layer(name: str, default: int, layer: int = layer) -> int:
            value = own.get(name, default)
            if isinstance(value, list):
                if len(value) != layers:
                    raise self._fault(
                        f"has {kind}.{name} for {len(value)} layers; the model has {layers}", f"{kind}.{name}"
                    )
                value = value[layer]
            return 0 if value == 0 else self._count({name: value}, kind, name)

        rules = KIND_RULES[kind]
        heads = of_layer("attention.head_count", 0)
        kv_heads = of_layer("attention.head_count_kv", heads)
        inner = of_layer("feed_forward_length", 0)
        if not heads and not rules.parts:
            raise self._fault(
                f"has {kind}.attention.head_count 0; it must be 1 to {MAX_CONTEXT}", f"{kind}.attention.head_count"
            )
        if rules.convolutions and not kv_heads:
            yield {"kind": "short_conv", "kernel": self._count(own, kind, "shortconv.l_cache")}
        elif heads:
            # llama.cpp divides by the number of heads of the first layer.
            default = width // max(1, of_layer("attention.head_count", 0, 0))
            d_head = self._count({"attention.key_length": default, **own}, kind, "attention.key_length")
            if own.get("attention.value_length", default) != d_head:
                name = "attention.value_length"
                raise self._fault(
                    f"has {kind}.{name} {own.get(name, default)}, not the width {d_head} of its heads", name
                )
            if not kv_heads:
                name = f"{kind}.attention.head_count_kv"
                raise self._fault(f"has {name} 0 in layer {layer}; a layer with attention needs at least 1", name)
            yield {
                "kind": "attention",
                "n_head": heads,
                "n_kv_head": kv_heads,
                "d_head": d_head,
                "bias": self._bias(rules, layers),
                "rope": rules.without_positions is None or (layer + 1) % rules.without_positions > 0,
                "qk_norm": rules.qk_norm,
                "scale": self._multiplier(own, kind, "attention.scale") if own.get("attention.scale") else None,
                **self._local(own, kind, layer),
            }
        if inner or not rules.parts:
            parallel = rules.parallel[0]
            if kind == "gptneox":
                parallel = "own_norm" if self._required(own, kind, "use_parallel_residual") is True else None
            if kind == "stablelm":  # llama.cpp ignores the field and decides by the norm
                parallel = None if self._has(layers, "ffn_norm.weight") else "shared_norm"
            yield {
                "kind": "feed_forward",
                "d_inner": self._count({"feed_forward_length": inner}, kind, "feed_forward_length"),
                "gated": rules.gated,
                "bias": rules.feed_forward_biases[0]
                or (True in rules.feed_forward_biases and self._has(layers, "ffn_down.bias")),
                "parallel": parallel,
            }

    def _local(self, own: Mapping[str, Any], kind: str, layer: int) -> dict[str, Any]:
        """Window of a layer (in Gemma 3 five of six layers have a window), and the layer's rotary base in Gemma 3."""
        window, name = own.get("attention.sliding_window") or None, "rope.freq_base_swa"
        if own.get(name, LOCAL_BASE) != LOCAL_BASE or (name in own and kind != "gemma3"):
            raise self._fault(
                f"has {kind}.{name} {short(own[name])}; only {LOCAL_BASE} in Gemma 3 is supported", f"{kind}.{name}"
            )
        if kind != "gemma3" or window is None:
            return {"window": window}
        return {"window": window, "theta": LOCAL_BASE} if (layer + 1) % LOCAL_LAYERS else {}

    def _percent(self, own: Mapping[str, Any], kind: GgufKind, description: Mapping[str, Any]) -> int:
        """Percentage of each head's features that are rotated; 100 unless llama.cpp's architecture permits less."""
        name = "rope.dimension_count"
        d_head = next((block["d_head"] for block in description["blocks"] if block["kind"] == "attention"), 1)
        rotary_dim = own.get(name, d_head)
        if rotary_dim == d_head:
            return 100
        if not KIND_RULES[kind].partial or type(rotary_dim) is not int or not 0 < rotary_dim < d_head:
            raise self._fault(f"has {kind}.{name} {short(rotary_dim)}, not the width {d_head} of its heads", name)
        return -(-100 * rotary_dim // d_head)  # rounded up, because the description rounds the number of features down

    def _scale_positions(self, description: dict[str, Any]) -> None:
        """Adds the rotary scaling that the tensor `rope_freqs.weight` encodes; only Llama 3.1's scaling is supported.

        The file lacks the scaling's length and limits, which are the same in all models of Llama 3.1 (`RotaryScaling`).
        """
        if _ROPE_FREQS not in self._tensors:
            return
        divisors = self.tensor(_ROPE_FREQS)
        d_head = next(block["d_head"] for block in description["blocks"] if block["kind"] == "attention")
        plain = {"kind": "rotary", "theta": description["positions"]["theta"]}
        most = float(divisors.max())
        scaling = {"factor": int(most) if most == int(most) else str(np.float32(most))}
        expected = rotary_frequencies(RotaryPositions.model_validate(plain), d_head) / rotary_frequencies(
            RotaryPositions.model_validate({**plain, "scaling": scaling}), d_head
        )
        if expected.shape != divisors.shape or not np.allclose(divisors, expected, rtol=1e-5):
            raise self._fault(f"has {_ROPE_FREQS} that differs from Llama 3.1's scaling of positions", "positions")
        description["positions"]["scaling"] = scaling

    def _bias(self, rules: KindRules, layers: int) -> str:
        if "none" not in rules.biases:
            return rules.biases[0]
        if "all" in rules.biases and self._has(layers, "attn_output.bias"):
            return "all"
        has_some = self._has(layers, "attn_q.bias", "attn_k.bias", "attn_v.bias")
        return "qkv" if has_some and "qkv" in rules.biases else "none"

    def _has(self, layers: int, *names: str) -> bool:
        """Whether any layer has one of these tensors; `weights` later checks that all layers have the tensors."""
        return any(f"blk.{layer}.{name}" in self._tensors for layer in range(layers) for name in names)

    def tokenizer(self) -> dict[str, bytes]:
        """Files of the model's tokenizer: `tokenizer.json` and related files (`core.model_files.gguf_tokenizer`)."""
        return tokenizer_files(self.header)

    # The weights ---------------------------------------------------------------------------------------------------

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Values of a tensor of any format, converted to float32."""
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
                f"has {name} as {stored.kind_name}, which the installed gguf package cannot read", "weights"
            ) from None
        if not np.isfinite(values).all():
            raise not_finite(stored.path, name)
        return np.asarray(values, np.float32).reshape(stored.shape)

    @property
    def name(self) -> str | None:
        """Name of the model; None if the name is missing or a digest written by edgefront."""
        name = self._fields.get("general.name")
        return name if isinstance(name, str) and name.strip() and not name.startswith("edgefront-") else None

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
            raise self._fault(f"has {kind}.{name} {short(value)}; it must be 1 to {maximum}", f"{kind}.{name}")
        return value

    def _multiplier(self, own: Mapping[str, Any], kind: str, name: str) -> int | str:
        """Shortest number that rounds to this float32 field; 1 if the field is missing or 0."""
        return as_number(float(str(self._positive(kind, name, own.get(name) or 1))))

    def _positive(self, kind: str, name: str, value: Any) -> np.float32:
        if not is_positive(value):
            raise self._fault(f"has {kind}.{name} {short(value)}; it must be a positive number", f"{kind}.{name}")
        rounded: np.float32 = np.float32(value)
        return rounded

    def _fault(self, what: str, field: str) -> InvalidInput:
        return fault(self.path, what, field)


class _Weights(Mapping[str, NDArray[np.float32]]):
    def __init__(self, file: GgufFile) -> None:
        from edgefront.core.model_files.gguf_tensors import GgufTensor, tensors

        self._file = file
        architecture = file.architecture
        self._parts: dict[str, list[GgufTensor]] = {spec.name: [] for spec in parameters(architecture)}
        self._shapes = {spec.name: spec.shape for spec in parameters(architecture)}
        read = set()
        for tensor, _ in tensors(architecture, gguf_form(architecture), "float32"):
            read.add(tensor.name)
            if tensor.constant is None:
                stored = file._tensor(tensor.name)
                if stored.shape != tensor.shape:
                    raise file._fault(f"has {tensor.name} of shape {stored.shape}, not {tensor.shape}", "weights")
                self._parts[tensor.spec.name].append(tensor)
            elif tensor.name in file.header.tensors and not np.any(tensor.constant) and file.tensor(tensor.name).any():
                read.remove(tensor.name)  # not the zeros that replace a missing attention or feed-forward
        for name in sorted(file.header.tensors.keys() - read):
            raise file._fault(f"has {name}, which is not a parameter of its architecture", "weights")

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        shape = self._shapes[name]
        flat = np.zeros((shape[0], int(np.prod(shape[1:]))), np.float32)
        for tensor in self._parts[name]:
            tensor.read_into(flat, self._file.tensor(tensor.name))
        return flat.reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)
