"""Loads weights into a `LanguageModel`: our own files, and the state dicts of GPT-2 and OPT as others keep them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from core.errors import InvalidInput
from core.graph.parameters import parameters
from core.nn.model import LanguageModel
from core.spaces.architecture import Architecture, Attention, FeedForward

Weights = dict[str, Tensor]


def load_safetensors(path: Path | str) -> LanguageModel:
    """The model of a file that `core.graph.export` wrote: its architecture and its parameters.

    Raises `InvalidInput` where the file is not such a file or a parameter is missing, unknown or of a wrong shape.
    """
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise InvalidInput(f"{path} is not a safetensors file: {error}", field="path", value=str(path)) from error
    if about.get("format") != "edgefront" or "architecture" not in about:
        raise InvalidInput(
            f"{path} does not describe its architecture",
            field="path",
            value=str(path),
            allowed="a safetensors file written by edgefront",
        )
    architecture = Architecture.parse(about["architecture"])
    if about.get("digest") != architecture.digest:
        raise InvalidInput(
            f"{path} names digest {about.get('digest')} but holds architecture {architecture.digest}",
            field="digest",
            value=about.get("digest"),
            allowed=architecture.digest,
        )
    return load(LanguageModel(architecture), weights)


def load(model: LanguageModel, weights: Mapping[str, Tensor]) -> LanguageModel:
    """Makes `weights`, by parameter name, the parameters of `model` (no copy); returns the model.

    Raises `InvalidInput` naming the first parameter that is missing, unknown or of a wrong shape.
    """
    shapes = {spec.name: spec.shape for spec in parameters(model.architecture)}
    for name in sorted(shapes.keys() ^ weights.keys()):
        fault = "is missing" if name in shapes else "is not a parameter of this architecture"
        raise InvalidInput(f"{name} {fault}", field=name, allowed="exactly the parameters of the architecture")
    for name, shape in shapes.items():
        found = tuple(weights[name].shape)
        if found != shape:
            raise InvalidInput(f"{name} must be {shape}, not {found}", field=name, value=found, allowed=str(shape))
    model.load_state_dict(dict(weights), assign=True)
    return model


def from_gpt2(state: Mapping[str, Tensor], architecture: Architecture) -> Weights:
    """Renames a Hugging Face `GPT2LMHeadModel` state dict; its linear weights are (in, out) and get transposed.

    `architecture` alternates attention and feed-forward, and has a plain embedding of width d_model.
    Raises `InvalidInput` naming the first entry that is missing.
    """
    names = _Source(state, "transformer.")
    weights = {"embedding.tables.0": names["wte.weight"], "positions.weight": names["wpe.weight"]}
    for layer, attention, feed_forward in _layers(architecture):
        source = f"h.{layer}"
        for ours, theirs in (
            (f"{attention}.qkv", f"{source}.attn.c_attn"),
            (f"{attention}.out", f"{source}.attn.c_proj"),
            (f"{feed_forward}.up", f"{source}.mlp.c_fc"),
            (f"{feed_forward}.down", f"{source}.mlp.c_proj"),
        ):
            weights[f"{ours}.weight"] = names[f"{theirs}.weight"].T.contiguous()
            weights[f"{ours}.bias"] = names[f"{theirs}.bias"]
        weights |= names.pair(f"{attention}.norm", f"{source}.ln_1")
        weights |= names.pair(f"{feed_forward}.norm", f"{source}.ln_2")
    return weights | names.pair("final_norm", "ln_f")


def from_opt(state: Mapping[str, Tensor], architecture: Architecture) -> Weights:
    """Renames a Hugging Face `OPTForCausalLM` state dict (pre-norm); queries, keys and values become one map.

    With word_embed_proj_dim ≠ hidden_size its two projections are our embedding's and our head's.
    Raises `InvalidInput` naming the first entry that is missing.
    """
    names = _Source(state, "model.decoder.")
    weights = {"embedding.tables.0": names["embed_tokens.weight"], "positions.weight": names["embed_positions.weight"]}
    if architecture.d_embed != architecture.d_model:
        weights["embedding.projections.0"] = names["project_in.weight"]
        weights["output.head_projection"] = names["project_out.weight"]
    for layer, attention, feed_forward in _layers(architecture):
        source = f"layers.{layer}"
        for part in ("weight", "bias"):
            qkv = [names[f"{source}.self_attn.{letter}_proj.{part}"] for letter in "qkv"]
            weights[f"{attention}.qkv.{part}"] = torch.cat(qkv)
        weights |= names.pair(f"{attention}.out", f"{source}.self_attn.out_proj")
        weights |= names.pair(f"{attention}.norm", f"{source}.self_attn_layer_norm")
        weights |= names.pair(f"{feed_forward}.norm", f"{source}.final_layer_norm")
        weights |= names.pair(f"{feed_forward}.up", f"{source}.fc1")
        weights |= names.pair(f"{feed_forward}.down", f"{source}.fc2")
    return weights | names.pair("final_norm", "final_layer_norm")


class _Source:
    """Another library's state dict, with or without the prefix of its language-model wrapper."""

    def __init__(self, state: Mapping[str, Tensor], prefix: str) -> None:
        self._state = {name.removeprefix(prefix): value for name, value in state.items()}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._state:
            raise InvalidInput(f"the state dict has no {name}", field=name, allowed="a state dict of this architecture")
        return self._state[name]

    def pair(self, ours: str, theirs: str) -> Weights:
        return {f"{ours}.{part}": self[f"{theirs}.{part}"] for part in ("weight", "bias")}


def _layers(architecture: Architecture) -> list[tuple[int, str, str]]:
    """(layer, prefix of its attention, prefix of its feed-forward) of a model that alternates the two."""
    kinds = [type(block) for block in architecture.blocks]
    n_layer = architecture.n_layer
    if kinds != [Attention, FeedForward] * n_layer:
        raise InvalidInput(
            "the layers of GPT-2 and OPT are an attention block and a feed-forward block each",
            field="blocks",
            value=[block.kind for block in architecture.blocks],
            allowed="attention, feed_forward, attention, feed_forward, …",
        )
    return [(layer, f"blocks.{2 * layer}", f"blocks.{2 * layer + 1}") for layer in range(n_layer)]
