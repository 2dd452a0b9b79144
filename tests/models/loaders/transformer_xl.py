"""Transformer-XL of Hugging Face transformers up to 4.35, of the paper's own code and of NVIDIA's."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from edgefront.core.errors import InvalidInput
from edgefront.core.graph.parameters import clusters, own_projection, projected, table_specs
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.embeddings_and_head import RelativePositions
from loaders.foreign import ForeignState, Weights, check_output, layers


def from_transformer_xl(
    state: Mapping[str, Tensor], architecture: Architecture, *, reverse_clusters: bool = False
) -> Weights:
    """Renames the state dict of a `TransfoXLLMHeadModel`, a `TransfoXLModel` or a `MemTransformerLM`.

    untie_r is positions.shared false, div_val is embedding.div, and tie_projs is output.tied_projections; there is no
    final norm, before or after. The paper's own `MemTransformerLM` and NVIDIA's (`model_state` of its checkpoints) have
    the clusters' rows (`crit.cluster_weight`, `crit.cluster_bias`) in the opposite order: `reverse_clusters`.
    """
    check_output(architecture, "Transformer-XL", "tokens", "none")
    positions = architecture.positions
    if not isinstance(positions, RelativePositions):
        raise InvalidInput(
            f"Transformer-XL has relative positions, not {positions.kind}",
            field="positions.kind",
            value=positions.kind,
            allowed="relative",
        )
    names = ForeignState(state, "transformer.")
    weights = _embedding(names, architecture)
    if positions.shared:
        weights |= {"positions.u": names["r_w_bias"], "positions.v": names["r_r_bias"]}
    for layer, attention, feed_forward in layers(architecture, "Transformer-XL"):
        source = f"layers.{layer}.dec_attn"
        for ours, theirs in (("qkv", "qkv_net"), ("out", "o_net"), ("relative", "r_net")):
            weights[f"{attention}.{ours}.weight"] = names[f"{source}.{theirs}.weight"]
        for ours, theirs in (("u", "r_w_bias"), ("v", "r_r_bias")):
            if positions.shared:
                names.tied(f"{source}.{theirs}", theirs)
            else:
                weights[f"{attention}.{ours}"] = names[f"{source}.{theirs}"]
        weights |= names.pair(f"{attention}.norm", f"{source}.layer_norm")
        weights |= names.pair(f"{feed_forward}.up", f"layers.{layer}.pos_ff.CoreNet.0")
        weights |= names.pair(f"{feed_forward}.down", f"layers.{layer}.pos_ff.CoreNet.3")
        weights |= names.pair(f"{feed_forward}.norm", f"layers.{layer}.pos_ff.layer_norm")
    if architecture.output.kind == "tokens":
        weights |= _output(names, architecture, reverse_clusters)
    names.finish(r"pos_emb\.inv_freq", *([] if architecture.output.kind == "tokens" else [r"crit\..*"]))
    return weights


def _embedding(names: ForeignState, architecture: Architecture) -> Weights:
    weights: Weights = {}
    for index in range(len(table_specs(architecture))):
        weights[f"embedding.tables.{index}"] = names[f"word_emb.emb_layers.{index}.weight"]
        if projected(architecture):
            weights[f"embedding.projections.{index}"] = names[f"word_emb.emb_projs.{index}"]
    return weights


def _output(names: ForeignState, architecture: Architecture, reverse_clusters: bool) -> Weights:
    weights: Weights = {}
    biases = []
    theirs = "crit.out_layers.{}.weight", "crit.out_layers.{}.bias"
    if "crit.out_layers_biases.0" in names:  # NVIDIA's
        theirs = "crit.out_layers_weights.{}", "crit.out_layers_biases.{}"
    for index in range(len(table_specs(architecture))):
        weight, bias = (name.format(index) for name in theirs)
        biases.append(names[bias])
        if architecture.output.tied:
            names.tied(weight, f"word_emb.emb_layers.{index}.weight")
        else:
            weights[f"output.tables.{index}"] = names[weight]
    weights["output.bias"] = torch.cat(biases)
    if projected(architecture):
        weights |= _projections(names, architecture)
    if architecture.embedding.cutoffs:
        for part in ("cluster_weight", "cluster_bias"):
            rows = names[f"crit.{part}"]
            weights[f"output.{part}"] = rows.flip(0) if reverse_clusters else rows
    return weights


def _projections(names: ForeignState, architecture: Architecture) -> Weights:
    """One a cluster there (d_model, width), one a table here (width, d_model)."""
    weights: Weights = {}
    last = len(table_specs(architecture)) - 1
    first_own: dict[int, str] = {}
    for cluster in clusters(architecture):
        index, theirs = min(cluster.index, last), f"crit.out_projs.{cluster.index}"
        if not own_projection(architecture, cluster):
            names.tied(theirs, f"word_emb.emb_projs.{index}")
        elif index in first_own:
            names.tied(theirs, first_own[index])
        else:
            first_own[index] = theirs
            weights[f"output.projections.{index}"] = names[theirs].T.contiguous()
    for index in range(last + 1):  # NVIDIA's second name of the embedding's
        names.tied(f"crit.shared_out_projs.{index}", f"word_emb.emb_projs.{index}")
    return weights
