"""SRU and SRU++ as the package `sru` keeps them, versions 2 and 3, and its scripts' language models around them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from edgefront.core.errors import InvalidInput
from edgefront.core.graph.parameters import clusters, own_projection
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Block, Sru, Srupp
from loaders.foreign import ForeignState, Weights, check_output


def from_sru(state: Mapping[str, Tensor], architecture: Architecture) -> Weights:
    """Renames the state dict of an `SRU`, or of a script's language model around one; version 2's maps are (in, out).

    `architecture` has one sru block a layer. What no description has is refused: norms of whole layers, a rescaled
    highway, two directions, and inputs of another width than the hidden state.
    """
    return _renamed(state, architecture, Sru)


def from_srupp(state: Mapping[str, Tensor], architecture: Architecture) -> Weights:
    """Renames the state dict of an `SRUpp`, or of a script's language model around one.

    `architecture` has one srupp block a layer, with `attends` "none" where the layer has no attention. Refused is the
    same as by `from_sru`.
    """
    return _renamed(state, architecture, Srupp)


def _renamed(state: Mapping[str, Tensor], architecture: Architecture, kind: type[Block]) -> Weights:
    check_output(architecture, "sru", "tokens", "none")
    names = ForeignState(state, "rnn.")
    weights: Weights = {}
    for index, block in enumerate(architecture.blocks):
        if not isinstance(block, kind):
            raise InvalidInput(
                f"blocks.{index} is {block.kind}, but all layers of the state dict are {kind.__name__.lower()}",
                field=f"blocks.{index}",
                value=block.kind,
                allowed=kind.__name__.lower(),
            )
        theirs = f"rnn_lst.{index}"
        renamed = _srupp_maps(names, theirs, block) if isinstance(block, Srupp) else _sru_maps(names, theirs, block)
        renamed["up.weight"] = _by_gate(renamed["up.weight"], architecture.d_model, theirs)
        renamed["recurrence.weight"] = names[f"{theirs}.weight_c"].view(2, -1)
        renamed["recurrence.bias"] = names[f"{theirs}.bias"].view(2, -1)
        _check_scale(names, theirs)
        weights |= {f"blocks.{index}.{name}": value for name, value in renamed.items()}
    if "embedding_layer.weight" in names:
        weights["embedding.tables.0"] = names["embedding_layer.weight"]
        if architecture.output.kind == "tokens":
            weights |= {"output.tables.0": names["output_layer.weight"], "output.bias": names["output_layer.bias"]}
    elif "output_layer.out_layers.0.weight" in names:
        weights |= _adaptive_ends(names, architecture)
    names.finish()
    return weights


def _sru_maps(names: ForeignState, layer: str, block: Block) -> Weights:
    assert isinstance(block, Sru)
    if f"{layer}.weight" in names:  # version 2
        down, up = f"{layer}.weight_proj", names[f"{layer}.weight"].T
        return (
            {"up.weight": up} if block.d_proj is None else {"up.weight": up, "down.weight": names[down].T.contiguous()}
        )
    module = f"{layer}.transform_module"
    if block.d_proj is None:
        return {"up.weight": names[f"{module}.weight"]}
    return {"down.weight": names[f"{module}.0.weight"], "up.weight": names[f"{module}.1.weight"]}


def _srupp_maps(names: ForeignState, layer: str, block: Srupp) -> Weights:
    module = f"{layer}.transform_module"
    weights = {"down.weight": names[f"{module}.linear1.weight"]} | names.pair("norm", f"{module}.layer_norm")
    if block.attends == "none":
        return weights | {"up.weight": names[f"{module}.linear2.weight"]}
    return weights | {
        "kv.weight": names[f"{module}.linear2.weight"],
        "alpha": names[f"{module}.alpha"],
        "up.weight": names[f"{module}.linear3.weight"],
    }


def _by_gate(weight: Tensor, d_model: int, layer: str) -> Tensor:
    """Rows of candidate, forget and reset in turn, feature by feature → all of one before all of the next."""
    if weight.shape[0] != 3 * d_model:
        raise InvalidInput(
            f"{layer} projects to {weight.shape[0]} features, not to candidate, forget and reset of {d_model} each",
            field=layer,
            value=weight.shape[0],
            allowed=f"{3 * d_model}: one direction, and inputs as wide as the hidden state",
        )
    return weight.unflatten(0, (d_model, 3)).transpose(0, 1).flatten(0, 1)


def _check_scale(names: ForeignState, layer: str) -> None:
    name = f"{layer}.scale_x"
    if name in names and names[name].item() != 1:
        raise InvalidInput(
            f"{name} is {names[name].item():g}: no description rescales the highway",
            field=name,
            value=names[name].item(),
            allowed="1, of a model made with rescale=False",
        )


def _adaptive_ends(names: ForeignState, architecture: Architecture) -> Weights:
    """Embedding and softmax of the word-level scripts, with tied tables.

    The clusters' rows stand under the head's table, the last cluster first.
    """
    parts = clusters(architecture)
    if architecture.embedding.div == 1:
        raise InvalidInput(
            "embedding.div is 1, but the state dict has a separate embedding for every cluster",
            field="embedding.div",
            value=1,
            allowed="the div_val that the model was made with, above 1",
        )
    weights: Weights = {}
    biases = []
    for cluster in parts:
        layer, projection = f"output_layer.out_layers.{cluster.index}", f"output_layer.out_projs.{cluster.index}"
        table, bias = names[f"{layer}.weight"], names[f"{layer}.bias"]
        if cluster.index == 0:
            weights["output.cluster_weight"] = table[cluster.size :].flip(0)
            weights["output.cluster_bias"] = bias[cluster.size :].flip(0)
        weights[f"embedding.tables.{cluster.index}"] = table[: cluster.size]
        biases.append(bias[: cluster.size])
        embedded = f"embedding_layer.emb_projs.{cluster.index}"
        if own_projection(architecture, cluster):
            weights[f"embedding.projections.{cluster.index}"] = names[embedded]
            weights[f"output.projections.{cluster.index}"] = names[projection].T.contiguous()
        else:
            weights[f"embedding.projections.{cluster.index}"] = names[projection]
            names.tied(embedded, projection)
    return weights | {"output.bias": torch.cat(biases)}
