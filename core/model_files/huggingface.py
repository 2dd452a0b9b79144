"""Writes folders of Hugging Face's transformers and reads their weights, without torch.

`core.architectures.huggingface` decides which models transformers can express. A folder is written as one tar archive:
config.json, model.safetensors (float32), generation_config.json, README.md, and the tokenizer of a trained model.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention
from edgefront.core.architectures.huggingface import CONFIG, parse_config, read_config, to_config
from edgefront.core.architectures.parameters import parameters
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.files import TAR_END, tar_header, tar_padding, whole_file
from edgefront.core.common.hugging_face import GENERATION_CONFIG
from edgefront.core.model_files.export import metadata, safetensors_head
from edgefront.core.model_files.folder_tensors import WEIGHTS, FolderTensors, unfit
from edgefront.core.model_files.parameter_values import ParameterValues, values_of
from edgefront.core.model_files.tensor_view import TensorView, fused_rows, owner_of

CARD = "README.md"

_TABLES: Mapping[str, Mapping[str, list[str]]] = json.loads(
    files(__package__).joinpath("huggingface_tensors.json").read_text("utf-8")
)
_LIKE_LLAMA = dict.fromkeys(("mobilellm", "mistral", "qwen2", "qwen3", "smollm3", "stablelm", "granite"), "llama")
_NAMES: Mapping[str, Mapping[str, list[str]]] = {
    **_TABLES,
    **{kind: _TABLES[like] for kind, like in _LIKE_LLAMA.items()},
    **{kind: {**_TABLES["llama"], **_TABLES[kind]} for kind in ("olmo2", "gemma3_text")},
}
"""Tensors of each module of edgefront, by model type; several tensors are rows of one parameter, in this order."""
_LESS_ONE = "gemma3_text"
"""Model type that stores norm weights minus one."""
_LAYERS = {
    "gpt2": "transformer.h",
    "opt": "model.decoder.layers",
    "gpt_neox": "gpt_neox.layers",
}
_PREFIX, _PREFIXES = "model.", {"gpt2": "transformer.", "gpt_neox": "gpt_neox."}
"""Prefixes of all tensor names except the output's."""
_OUTPUT, _HEAD, _HEADS = "output.tables.0", "lm_head.weight", {"gpt_neox": "embed_out.weight"}
"""Name of the output's tensor. GPT-NeoX's files have `embed_out`; version 5 of transformers reads both names."""
_EMBEDDING = "embedding.tables.0"
_OF_ROTARY_POSITIONS = r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"
_BUFFERS = {
    "gpt2": r"h\.\d+\.attn\.(masked_)?bias",
    "opt": r"(?!)",
    "gpt_neox": r"layers\.\d+\.attention\.((masked_)?bias|rotary_emb\.inv_freq)",
}
"""Names, after the prefix, of mask and frequency buffers that older versions stored."""


def write_transformers(
    architecture: Architecture,
    weights: int | ParameterValues,
    path: Path | str,
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Writes a tar archive with one folder, `edgefront-DIGEST`, that `AutoModelForCausalLM.from_pretrained` reads.

    `weights`: the seed of untrained weights, or given weights. `files` are added, and replace default files of equal
    name. Memory is bounded by the largest matrix. Raises `InvalidInput` for an architecture that transformers cannot
    express, `Unavailable` if the disk is full.
    """
    config = {**to_config(architecture), "dtype": "float32"}
    source = values_of(weights)
    views = list(tensor_views(architecture, config["model_type"]))
    # transformers accepts only files with format pt.
    about = {**metadata(architecture, source), "format": "pt"}
    head = safetensors_head(about, {view.name: view.shape for view in views})
    small = {
        CONFIG: _json(config),
        GENERATION_CONFIG: _json({"_from_model_config": False}),
        CARD: _card(architecture, source).encode(),
        **(files or {}),
    }
    folder = f"edgefront-{architecture.digest[:12]}"
    with whole_file(Path(path)) as file:
        for name, content in sorted(small.items()):
            file.write(tar_header(f"{folder}/{name}", len(content)) + content + tar_padding(len(content)))
        size = len(head) + 4 * sum(math.prod(view.shape) for view in views)
        file.write(tar_header(f"{folder}/{WEIGHTS}", size) + head)
        spec, values = None, np.empty(0, np.float32)
        for view in views:
            if view.spec != spec:  # views of one parameter are consecutive
                spec, values = view.spec, np.concatenate(list(source.chunks(view.spec)))
            file.write(view.of(values).astype("<f4", copy=False).data)
        file.write(tar_padding(size) + TAR_END)


def read_architecture(path: Path) -> Architecture:
    """Reads the description of a Hugging Face folder, or of its config.json.

    A folder whose stored output differs from the embedding gives an untied model, even if config.json declares a tied
    output. Raises the errors of `read_config`; unreadable weights are ignored.
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
    """Parameters of a Hugging Face folder by edgefront's parameter names, as float32; read on access.

    Raises `NotFound` if the folder has no safetensors files, `InvalidInput` that names the first tensor which is
    missing, unknown, or of another shape or type.
    """

    def __init__(self, folder: Path, architecture: Architecture) -> None:
        named = _Named(folder, architecture)
        self._tensors = named.tensors
        self._views: dict[str, list[tuple[str, TensorView]]] = {}
        for name, view in named.views:
            self._tensors.check(name, view.shape)
            self._views.setdefault(view.spec.name, []).append((name, view))
        expected = {name for name, _ in named.views}
        if architecture.output.tied and named.head in self._tensors:
            if _has_own_output(named):
                path = self._tensors.file_of(named.head)
                raise unfit(
                    path, f"has {named.head} that differs from the embedding, so that the model must not be tied"
                )
            expected.add(named.head)
        for name in self._tensors:
            if name not in expected and not named.buffers.fullmatch(name):
                raise unfit(self._tensors.file_of(name), f"has {name}, which is not a parameter of its {CONFIG}")

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        shape = self._views[name][0][1].spec.shape
        flat = np.empty((shape[0], math.prod(shape[1:])), np.float32)
        for theirs, view in self._views[name]:
            view.read_into(flat, self._tensors[theirs])
        return flat.reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


class _Named:
    """Tensors of a folder by stored name, each with the rows of the model's parameters that it contains."""

    def __init__(self, folder: Path, architecture: Architecture) -> None:
        model_type = parse_config((folder / CONFIG).read_bytes())["model_type"]
        prefix = _PREFIXES.get(model_type, _PREFIX)
        self.tensors = FolderTensors(folder)
        # Files saved without the output lack the prefix.
        bare = not any(name.startswith(prefix) for name in self.tensors)
        self.views = [
            (view.name.removeprefix(prefix) if bare else view.name, view)
            for view in tensor_views(architecture, model_type)
        ]
        head = _HEADS.get(model_type, _HEAD)
        self.head = head if head in self.tensors else _HEAD
        """Name of the output's tensor."""
        self.views = [(self.head if view.spec.name == _OUTPUT else name, view) for name, view in self.views]
        if architecture.output.tied and self.head in self.tensors:
            # safetensors stores tied tensors under the first name.
            self.views = [
                (name if view.spec.name != _EMBEDDING or name in self.tensors else self.head, view)
                for name, view in self.views
            ]
        self.buffers = re.compile(("" if bare else re.escape(prefix)) + _BUFFERS.get(model_type, _OF_ROTARY_POSITIONS))


def _has_own_output(named: _Named) -> bool:
    """Whether the stored output matrix differs from the embedding."""
    tensors = named.tensors
    if named.head not in tensors:
        return False
    embedding, view = next(pair for pair in named.views if pair[1].spec.name == _EMBEDDING)
    for name in (named.head, embedding):
        tensors.check(name, view.shape)
    return not np.array_equal(tensors[named.head], tensors[embedding])


def tensor_views(architecture: Architecture, model_type: str) -> Iterator[TensorView]:
    """Yields the tensors of transformers as views of edgefront's parameters, in the order of the parameters."""
    names, layers = _NAMES[model_type], _LAYERS.get(model_type, "model.layers")
    for spec in parameters(architecture):
        index, module, last = owner_of(spec, architecture)
        if spec.name == _OUTPUT:
            theirs = [_HEADS.get(model_type, _HEAD)]
        elif spec.name in names:
            theirs = names[spec.name]
        else:
            prefix = "" if index is None else f"{layers}.{index // 2}."
            theirs = [f"{prefix}{name}.{last}" for name in names[module]]
        if model_type == "gpt_neox" and module == "attention.qkv":
            # Queries, keys and values of one head after the other.
            n_head = next(block.n_head for block in architecture.blocks if isinstance(block, Attention))
            heads = np.arange(spec.shape[0]).reshape(3, n_head, -1).swapaxes(0, 1)
            yield TensorView(theirs[0], spec.shape, spec, heads.reshape(-1))
            continue
        is_conv = module == "short_conv.conv" and last == "weight"
        # GPT-2 stores the weights of linear layers as (in, out).
        transposed = is_conv or (model_type == "gpt2" and index is not None and len(spec.shape) == 2)
        offset = 1.0 if model_type == _LESS_ONE and spec.name.endswith("norm.weight") else 0.0
        for name, rows in zip(theirs, fused_rows(spec, architecture, index, len(theirs)), strict=True):
            shape: tuple[int, ...] = (rows.stop - rows.start, *spec.shape[1:])
            shape = shape[::-1] if transposed else shape
            yield TensorView(name, (shape[0], 1, shape[1]) if is_conv else shape, spec, rows, transposed, offset)


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
