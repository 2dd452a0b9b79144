"""The folder that Hugging Face's transformers reads: writes one, and reads the weights of one, without torch.

What transformers can express says `core.architectures.huggingface`. A folder is shipped as one tar archive:
config.json, model.safetensors (float32), generation_config.json, README.md, and the tokenizer of a trained model.
"""

from __future__ import annotations

import json
import math
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, FeedForward, ShortConv
from edgefront.core.architectures.huggingface import CONFIG, parse_config, read_config, to_config
from edgefront.core.architectures.parameters import ParameterSpec, parameters
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.files import whole_file
from edgefront.core.common.hugging_face import GENERATION_CONFIG
from edgefront.core.model_files.export import metadata, safetensors_head
from edgefront.core.model_files.folder_tensors import WEIGHTS, FolderTensors, unfit
from edgefront.core.model_files.parameter_values import ParameterValues, values_of

CARD = "README.md"

_LLAMA = {
    "attention.norm": ("input_layernorm",),
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.q_norm": ("self_attn.q_norm",),
    "attention.k_norm": ("self_attn.k_norm",),
    "attention.out": ("self_attn.o_proj",),
    "feed_forward.norm": ("post_attention_layernorm",),
    "feed_forward.up": ("mlp.gate_proj", "mlp.up_proj"),
    "feed_forward.down": ("mlp.down_proj",),
    "embedding.tables.0": ("model.embed_tokens.weight",),
    "final_norm": ("model.norm",),
}
_NAMES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "gpt2": {
        "attention.norm": ("ln_1",),
        "attention.qkv": ("attn.c_attn",),
        "attention.out": ("attn.c_proj",),
        "feed_forward.norm": ("ln_2",),
        "feed_forward.up": ("mlp.c_fc",),
        "feed_forward.down": ("mlp.c_proj",),
        "embedding.tables.0": ("transformer.wte.weight",),
        "positions": ("transformer.wpe",),
        "final_norm": ("transformer.ln_f",),
    },
    "opt": {
        "attention.norm": ("self_attn_layer_norm",),
        "attention.qkv": _LLAMA["attention.qkv"],
        "attention.out": ("self_attn.out_proj",),
        "feed_forward.norm": ("final_layer_norm",),
        "feed_forward.up": ("fc1",),
        "feed_forward.down": ("fc2",),
        "embedding.tables.0": ("model.decoder.embed_tokens.weight",),
        "embedding.projections.0": ("model.decoder.project_in.weight",),
        "positions": ("model.decoder.embed_positions",),
        "final_norm": ("model.decoder.final_layer_norm",),
        "output.projections.0": ("model.decoder.project_out.weight",),
    },
    **dict.fromkeys(("llama", "mobilellm", "mistral", "qwen2", "qwen3", "smollm3", "stablelm", "granite"), _LLAMA),
    "olmo2": {
        **_LLAMA,
        "attention.norm": ("post_attention_layernorm",),
        "feed_forward.norm": ("post_feedforward_layernorm",),
    },
    "gemma3_text": {
        **_LLAMA,
        "attention.after_norm": ("post_attention_layernorm",),
        "feed_forward.norm": ("pre_feedforward_layernorm",),
        "feed_forward.after_norm": ("post_feedforward_layernorm",),
    },
    "gpt_neox": {
        "attention.norm": ("input_layernorm",),
        "attention.qkv": ("attention.query_key_value",),
        "attention.out": ("attention.dense",),
        "feed_forward.norm": ("post_attention_layernorm",),
        "feed_forward.up": ("mlp.dense_h_to_4h",),
        "feed_forward.down": ("mlp.dense_4h_to_h",),
        "embedding.tables.0": ("gpt_neox.embed_in.weight",),
        "final_norm": ("gpt_neox.final_layer_norm",),
    },
    "phi": {
        "attention.norm": ("input_layernorm",),
        "attention.qkv": _LLAMA["attention.qkv"],
        "attention.out": ("self_attn.dense",),
        "feed_forward.up": ("mlp.fc1",),
        "feed_forward.down": ("mlp.fc2",),
        "embedding.tables.0": ("model.embed_tokens.weight",),
        "final_norm": ("model.final_layernorm",),
        "output.bias": ("lm_head.bias",),
    },
    "lfm2": {
        "attention.norm": ("operator_norm",),
        "attention.qkv": _LLAMA["attention.qkv"],
        "attention.q_norm": ("self_attn.q_layernorm",),
        "attention.k_norm": ("self_attn.k_layernorm",),
        "attention.out": ("self_attn.out_proj",),
        "short_conv.norm": ("operator_norm",),
        "short_conv.up": ("conv.in_proj",),
        "short_conv.conv": ("conv.conv",),
        "short_conv.out": ("conv.out_proj",),
        "feed_forward.norm": ("ffn_norm",),
        "feed_forward.up": ("feed_forward.w1", "feed_forward.w3"),
        "feed_forward.down": ("feed_forward.w2",),
        "embedding.tables.0": ("model.embed_tokens.weight",),
        "final_norm": ("model.embedding_norm",),
    },
}
"""Their names of our parameters, by the kind of the block and the part; several of them are its rows, in this order."""
_LESS_ONE = "gemma3_text"
"""Type that stores gains of norms less one."""
_LAYERS = {
    "gpt2": "transformer.h",
    "opt": "model.decoder.layers",
    "gpt_neox": "gpt_neox.layers",
}
_PREFIX, _PREFIXES = "model.", {"gpt2": "transformer.", "gpt_neox": "gpt_neox."}
"""What the names of all but the output begin with."""
_OUTPUT, _HEAD, _HEADS = "output.tables.0", "lm_head.weight", {"gpt_neox": "embed_out.weight"}
"""That of GPT-NeoX is what files have, and version 5 of transformers reads both."""
_EMBEDDING = "embedding.tables.0"
_OF_ROTARY_POSITIONS = r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"
_BUFFERS = {
    "gpt2": r"h\.\d+\.attn\.(masked_)?bias",
    "opt": r"(?!)",
    "gpt_neox": r"layers\.\d+\.attention\.((masked_)?bias|rotary_emb\.inv_freq)",
}
"""What older versions stored besides parameters, after the prefix: masks, frequencies."""


@dataclass(frozen=True)
class Twin:
    """A tensor of theirs: which rows it is of one of our parameters, turned round (axes reversed) if `transposed`, and
    less by `offset`.
    """

    name: str
    ours: str
    rows: slice | NDArray[np.intp]
    shape: tuple[int, ...]
    transposed: bool
    offset: float = 0.0

    def of(self, ours: NDArray[Any]) -> NDArray[Any]:
        part = ours[self.rows] - self.offset if self.offset else ours[self.rows]
        return np.ascontiguousarray(part.T if self.transposed else part).reshape(self.shape)

    def back(self, theirs: NDArray[Any]) -> NDArray[Any]:
        """The rows of our parameter."""
        theirs = theirs + self.offset if self.offset else theirs
        flat = theirs.reshape(self.shape[0], -1) if self.transposed else theirs
        if not isinstance(self.rows, slice):  # all of them, in another order
            flat = flat[np.argsort(self.rows)]
        return flat.T if self.transposed else flat


def write_transformers(
    architecture: Architecture,
    weights: int | ParameterValues,
    path: Path | str,
    files: Mapping[str, bytes] | None = None,
) -> None:
    """A tar archive with one folder, `edgefront-DIGEST`, that `AutoModelForCausalLM.from_pretrained` reads.

    `weights`: the seed of untrained ones, or given ones. `files` come beside them, in place of ours of the same name.
    Memory stays bounded by the largest matrix. Raises `InvalidInput` for an architecture that transformers cannot
    express, `Unavailable` where the disk is full.
    """
    config = {**to_config(architecture), "dtype": "float32"}
    values = values_of(weights)
    tensors = list(twins(architecture, config["model_type"]))
    specs = {spec.name: spec for spec in parameters(architecture)}
    # transformers takes only files whose format is pt.
    about = {**metadata(architecture, values), "format": "pt"}
    head = safetensors_head(about, {twin.name: twin.shape for twin in tensors})
    small = {
        CONFIG: _json(config),
        GENERATION_CONFIG: _json({"_from_model_config": False}),
        CARD: _card(architecture, values).encode(),
        **(files or {}),
    }
    folder = f"edgefront-{architecture.digest[:12]}"
    with whole_file(Path(path)) as file:
        for name, content in sorted(small.items()):
            _begin(file, f"{folder}/{name}", len(content))
            file.write(content)
            _end(file, len(content))
        size = len(head) + 4 * sum(math.prod(twin.shape) for twin in tensors)
        _begin(file, f"{folder}/{WEIGHTS}", size)
        file.write(head)
        whole: dict[str, NDArray[Any]] = {}
        for twin in tensors:
            if twin.ours not in whole:  # those of one parameter of a block follow each other
                spec = specs[twin.ours]
                whole = {twin.ours: np.concatenate(list(values.chunks(spec))).reshape(spec.shape)}
            file.write(twin.of(whole[twin.ours]).astype("<f4", copy=False).data)
        _end(file, size)
        file.write(bytes(2 * tarfile.BLOCKSIZE))


def read_architecture(path: Path) -> Architecture:
    """The description of a Hugging Face folder, or of its config.json. Where the folder stores an output that is not
    the embedding, the model is untied, whatever config.json says.

    Errors as in `read_config`; weights that cannot be read decide nothing.
    """
    architecture = read_config(path)
    if architecture.output.tied:
        folder = path if path.is_dir() else path.parent
        try:
            untied = _has_own_output(_Named(folder, architecture))
        except (NotFound, InvalidInput):
            untied = False
        if untied:
            return Architecture.parse({**architecture.canonical, "output": {"kind": "tokens", "tied": False}})
    return architecture


class TransformersWeights(Mapping[str, NDArray[np.float32]]):
    """The parameters of a Hugging Face folder under our names, as float32; read when they are asked for.

    Raises `NotFound` where the folder has no safetensors files, `InvalidInput` that names the first tensor which is
    missing, unknown, or of another shape or type.
    """

    def __init__(self, folder: Path, architecture: Architecture) -> None:
        named = _Named(folder, architecture)
        self._tensors = named.tensors
        self._theirs: dict[str, list[tuple[str, Twin]]] = {}
        for name, twin in named.twins:
            self._tensors.check(name, twin.shape)
            self._theirs.setdefault(twin.ours, []).append((name, twin))
        expected = {name for name, _ in named.twins}
        if architecture.output.tied and named.head in self._tensors:
            if _has_own_output(named):
                path = self._tensors.file_of(named.head)
                raise unfit(path, f"has {named.head}, which is not the embedding: the model is not tied")
            expected.add(named.head)
        for name in self._tensors:
            if name not in expected and not named.buffers.fullmatch(name):
                raise unfit(self._tensors.file_of(name), f"has {name}, which is not a parameter of its {CONFIG}")

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        return np.concatenate([twin.back(self._tensors[theirs]) for theirs, twin in self._theirs[name]])

    def __iter__(self) -> Iterator[str]:
        return iter(self._theirs)

    def __len__(self) -> int:
        return len(self._theirs)


class _Named:
    """A folder's tensors, and the name in it of each tensor that the model has."""

    def __init__(self, folder: Path, architecture: Architecture) -> None:
        model_type = parse_config((folder / CONFIG).read_bytes())["model_type"]
        prefix = _PREFIXES.get(model_type, _PREFIX)
        self.tensors = FolderTensors(folder)
        # Files of the model without its output lack the prefix.
        bare = not any(name.startswith(prefix) for name in self.tensors)
        self.twins = [
            (twin.name.removeprefix(prefix) if bare else twin.name, twin) for twin in twins(architecture, model_type)
        ]
        head = _HEADS.get(model_type, _HEAD)
        self.head = head if head in self.tensors else _HEAD
        """The name of the output."""
        self.twins = [(self.head if twin.ours == _OUTPUT else name, twin) for name, twin in self.twins]
        if architecture.output.tied and self.head in self.tensors:
            # Of tensors that are one, safetensors stores the first name.
            self.twins = [
                (name if twin.ours != _EMBEDDING or name in self.tensors else self.head, twin)
                for name, twin in self.twins
            ]
        self.buffers = re.compile(("" if bare else re.escape(prefix)) + _BUFFERS.get(model_type, _OF_ROTARY_POSITIONS))


def _has_own_output(named: _Named) -> bool:
    """Whether an output is stored that is not the embedding."""
    tensors = named.tensors
    if named.head not in tensors:
        return False
    embedding, twin = next(pair for pair in named.twins if pair[1].ours == _EMBEDDING)
    for name in (named.head, embedding):
        tensors.check(name, twin.shape)
    return not np.array_equal(tensors[named.head], tensors[embedding])


def twins(architecture: Architecture, model_type: str) -> Iterator[Twin]:
    """Their tensors in the order of our parameters."""
    names, layers = _NAMES[model_type], _LAYERS.get(model_type, "model.layers")
    for spec in parameters(architecture):
        if spec.name == _OUTPUT:
            theirs: tuple[str, ...] = (_HEADS.get(model_type, _HEAD),)
        elif spec.name in names:
            theirs = names[spec.name]
        else:
            owner, _, last = spec.name.rpartition(".")
            prefix, key = "", owner
            if owner.startswith("blocks."):
                index = int(owner.split(".")[1])
                key = f"{architecture.blocks[index].kind}.{owner.split('.')[2]}"
                prefix = f"{layers}.{index // 2}."
            theirs = tuple(f"{prefix}{name}.{last}" for name in names[key])
        yield from _split(architecture, spec, theirs, model_type)


def _split(architecture: Architecture, spec: ParameterSpec, names: tuple[str, ...], model_type: str) -> Iterator[Twin]:
    block = architecture.blocks[int(spec.name.split(".")[1])] if spec.name.startswith("blocks.") else None
    part = spec.name.split(".")[2] if block is not None else ""
    is_taps = isinstance(block, ShortConv) and part == "conv" and len(spec.shape) == 2
    # GPT-2 keeps its linear layers (in, out).
    turned = model_type == "gpt2" and block is not None and len(spec.shape) == 2
    counts = [spec.shape[0]]
    if len(names) > 1 and isinstance(block, Attention):
        d_head = architecture.d_head(block)
        counts = [block.n_head * d_head, block.kv_heads * d_head, block.kv_heads * d_head]
    elif len(names) > 1 and isinstance(block, FeedForward):
        counts = [block.d_inner, block.d_inner]
    if model_type == "gpt_neox" and part == "qkv" and isinstance(block, Attention):
        # Queries, keys and values of one head after the other.
        order = np.arange(spec.shape[0]).reshape(3, block.n_head, -1).swapaxes(0, 1).reshape(-1)
        yield Twin(names[0], spec.name, order, spec.shape, False)
        return
    start = 0
    for name, count in zip(names, counts, strict=True):
        shape = (count, *spec.shape[1:])
        if is_taps:
            shape = (spec.shape[1], 1, spec.shape[0])
        elif turned:
            shape = shape[::-1]
        offset = 1.0 if model_type == _LESS_ONE and spec.name.endswith("norm.weight") else 0.0
        yield Twin(name, spec.name, slice(start, start + count), shape, turned or is_taps, offset)
        start += count


def _card(architecture: Architecture, values: ParameterValues) -> str:
    weights = values.about.get("weights", "given")
    return (
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- edgefront\n---\n\n"
        f"# Language model {architecture.digest[:12]}\n\n"
        f"Written by edgefront. Architecture `{architecture.digest}`; weights: {weights}"
        + (f" (seed {values.about['seed']})" if "seed" in values.about else "")
        + ".\n\n```python\nfrom transformers import AutoModelForCausalLM\n\n"
        'model = AutoModelForCausalLM.from_pretrained(".")\n```\n'
    )


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def _begin(file: BinaryIO, name: str, size: int) -> None:
    """The header of a file in a tar archive, without a time, so that the same model gives the same bytes."""
    info = tarfile.TarInfo(name)
    info.size = size
    file.write(info.tobuf(tarfile.GNU_FORMAT))


def _end(file: BinaryIO, size: int) -> None:
    file.write(bytes(-size % tarfile.BLOCKSIZE))
