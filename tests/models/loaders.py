"""Other libraries' state dicts as the weights of our architectures: each `from_…` renames every entry that there is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Sru, Srupp
from edgefront.core.architectures.embeddings_and_head import RelativePositions
from edgefront.core.architectures.parameters import own_projection, table_specs

Weights = dict[str, Tensor]


class ForeignState:
    """A state dict, with or without the prefix of its wrapper (`transformer.` of a model with a head)."""

    def __init__(self, state: Mapping[str, Tensor], prefix: str) -> None:
        self._state = {name.removeprefix(prefix): value for name, value in state.items()}
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._state

    def __getitem__(self, name: str) -> Tensor:
        self._read.add(name)
        return self._state[name]

    def pair(self, ours: str, theirs: str) -> Weights:
        """Weight and bias of a linear layer or a norm."""
        return {f"{ours}.{part}": self[f"{theirs}.{part}"] for part in ("weight", "bias")}

    def joined(self, ours: str, theirs: Sequence[str]) -> Weights:
        """Weights and biases of several linear layers of one input, as one map with their rows in this order."""
        return {
            f"{ours}.{part}": torch.cat([self[f"{their}.{part}"] for their in theirs]) for part in ("weight", "bias")
        }

    def tied(self, copy: str, original: str) -> None:
        """A second name of one tensor may be missing, but must not hold anything else."""
        assert copy not in self or self[copy] is self[original] or torch.equal(self[copy], self[original]), copy

    def output_tables(self, architecture: Architecture, head: str, table: str) -> Weights:
        """The table of an output over the vocabulary: its own, or the same values as the embedding's."""
        if not architecture.output.tied:
            return {"output.tables.0": self[head]}
        self.tied(head, table)
        return {}

    def finish(self, *without: str) -> None:
        """Nothing is left unread but what matches one of these patterns in full."""
        left = self._state.keys() - self._read
        assert not [name for name in left if not any(re.fullmatch(pattern, name) for pattern in without)]


def _layers(architecture: Architecture) -> list[tuple[int, str, str]]:
    """(layer, prefix of its attention, prefix of its feed-forward) of a model that alternates the two."""
    count = len(architecture.blocks) // 2
    return [(layer, f"blocks.{2 * layer}", f"blocks.{2 * layer + 1}") for layer in range(count)]


def from_bert(state: Mapping[str, Tensor], architecture: Architecture) -> Weights:
    """The output kind says which head is read: none (`BertModel`), pooled (with its pooler), masked_tokens
    (`BertForMaskedLM`), classes (`BertForSequenceClassification`) or spans (`BertForQuestionAnswering`).
    """
    names, kind = ForeignState(state, "bert."), architecture.output.kind
    table = "embeddings.word_embeddings.weight"
    weights = {
        "embedding.tables.0": names[table],
        "embedding.segments": names["embeddings.token_type_embeddings.weight"],
        "positions.weight": names["embeddings.position_embeddings.weight"],
    }
    weights |= names.pair("embedding.norm", "embeddings.LayerNorm")
    for layer, attention, feed_forward in _layers(architecture):
        source = f"encoder.layer.{layer}"
        maps = [f"{source}.attention.self.{part}" for part in ("query", "key", "value")]
        weights |= names.joined(f"{attention}.qkv", maps)
        weights |= names.pair(f"{attention}.out", f"{source}.attention.output.dense")
        weights |= names.pair(f"{attention}.norm", f"{source}.attention.output.LayerNorm")
        weights |= names.pair(f"{feed_forward}.up", f"{source}.intermediate.dense")
        weights |= names.pair(f"{feed_forward}.down", f"{source}.output.dense")
        weights |= names.pair(f"{feed_forward}.norm", f"{source}.output.LayerNorm")
    if kind == "masked_tokens":
        weights |= names.pair("output.transform", "cls.predictions.transform.dense")
        weights |= names.pair("output.transform_norm", "cls.predictions.transform.LayerNorm")
        weights |= names.output_tables(architecture, "cls.predictions.decoder.weight", table)
        weights["output.bias"] = names["cls.predictions.bias"]
        names.tied("cls.predictions.decoder.bias", "cls.predictions.bias")
    if kind in ("pooled", "classes"):
        weights |= names.pair("output.pooler", "pooler.dense")
    if kind == "classes":
        weights |= names.pair("output.classes", "classifier")
    if kind == "spans":
        weights |= names.pair("output.spans", "qa_outputs")
    heads = (r"pooler\..*", r"cls\..*", r"classifier\..*", r"qa_outputs\..*")
    names.finish(*heads, r"embeddings\.(position_ids|token_type_ids)")
    return weights


def from_distilbert(state: Mapping[str, Tensor], architecture: Architecture) -> Weights:
    """BERT without segments and pooler (Sanh et al. 2019, §3): output kinds none, masked_tokens and spans."""
    names, kind = ForeignState(state, "distilbert."), architecture.output.kind
    table = "embeddings.word_embeddings.weight"
    weights = {"embedding.tables.0": names[table], "positions.weight": names["embeddings.position_embeddings.weight"]}
    weights |= names.pair("embedding.norm", "embeddings.LayerNorm")
    for layer, attention, feed_forward in _layers(architecture):
        source = f"transformer.layer.{layer}"
        weights |= names.joined(f"{attention}.qkv", [f"{source}.attention.{letter}_lin" for letter in "qkv"])
        weights |= names.pair(f"{attention}.out", f"{source}.attention.out_lin")
        weights |= names.pair(f"{attention}.norm", f"{source}.sa_layer_norm")
        weights |= names.pair(f"{feed_forward}.up", f"{source}.ffn.lin1")
        weights |= names.pair(f"{feed_forward}.down", f"{source}.ffn.lin2")
        weights |= names.pair(f"{feed_forward}.norm", f"{source}.output_layer_norm")
    if kind == "masked_tokens":
        weights |= names.pair("output.transform", "vocab_transform")
        weights |= names.pair("output.transform_norm", "vocab_layer_norm")
        weights["output.bias"] = names["vocab_projector.bias"]
        weights |= names.output_tables(architecture, "vocab_projector.weight", table)
    if kind == "spans":
        weights |= names.pair("output.spans", "qa_outputs")
    names.finish(r"vocab_.*", r"pre_classifier\..*", r"classifier\..*", r"qa_outputs\..*", r"embeddings\.position_ids")
    return weights


def from_sru(state: Mapping[str, Tensor], architecture: Architecture) -> Weights:
    """Of an `SRU`, an `SRUpp`, or a script's language model around one, of versions 2 and 3 of the package `sru`."""
    names = ForeignState(state, "rnn.")
    weights: Weights = {}
    for index, block in enumerate(architecture.blocks):
        theirs = f"rnn_lst.{index}"
        assert isinstance(block, Sru | Srupp)
        renamed = _srupp_maps(names, theirs, block) if isinstance(block, Srupp) else _sru_maps(names, theirs, block)
        # Rows of candidate, forget and reset in turn, feature by feature → all of one before all of the next.
        by_feature = renamed["up.weight"].unflatten(0, (architecture.d_model, 3))
        renamed["up.weight"] = by_feature.transpose(0, 1).flatten(0, 1)
        renamed["recurrence.weight"] = names[f"{theirs}.weight_c"].view(2, -1)
        renamed["recurrence.bias"] = names[f"{theirs}.bias"].view(2, -1)
        assert f"{theirs}.scale_x" not in names or names[f"{theirs}.scale_x"].item() == 1
        weights |= {f"blocks.{index}.{name}": value for name, value in renamed.items()}
    if "embedding_layer.weight" in names:
        weights["embedding.tables.0"] = names["embedding_layer.weight"]
        weights |= {"output.tables.0": names["output_layer.weight"], "output.bias": names["output_layer.bias"]}
    names.finish()
    return weights


def _sru_maps(names: ForeignState, layer: str, block: Sru) -> Weights:
    module = f"{layer}.transform_module"
    if f"{layer}.weight" in names:  # version 2, whose maps are (in, out)
        up = {"up.weight": names[f"{layer}.weight"].T}
        return up if block.d_proj is None else {**up, "down.weight": names[f"{layer}.weight_proj"].T.contiguous()}
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


def from_transformer_xl(
    state: Mapping[str, Tensor], architecture: Architecture, *, reverse_clusters: bool = False
) -> Weights:
    """Of a `TransfoXLLMHeadModel` of transformers up to 4.35, or a `MemTransformerLM` of the paper's code or NVIDIA's,
    which have the clusters' rows in the opposite order: `reverse_clusters`.

    untie_r is positions.shared false, div_val is embedding.div, and tie_projs is output.tied_projections.
    """
    positions, names = architecture.positions, ForeignState(state, "transformer.")
    assert isinstance(positions, RelativePositions)
    weights: Weights = {}
    for index in range(len(table_specs(architecture))):
        weights[f"embedding.tables.{index}"] = names[f"word_emb.emb_layers.{index}.weight"]
        if architecture.projected:
            weights[f"embedding.projections.{index}"] = names[f"word_emb.emb_projs.{index}"]
    if positions.shared:
        weights |= {"positions.u": names["r_w_bias"], "positions.v": names["r_r_bias"]}
    for layer, attention, feed_forward in _layers(architecture):
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
    weights |= _adaptive_output(names, architecture, reverse_clusters)
    names.finish(r"pos_emb\.inv_freq")
    return weights


def _adaptive_output(names: ForeignState, architecture: Architecture, reverse_clusters: bool) -> Weights:
    weights: Weights = {}
    biases = []
    theirs = "crit.out_layers.{}.weight", "crit.out_layers.{}.bias"
    if "crit.out_layers_biases.0" in names:  # NVIDIA's
        theirs = "crit.out_layers_weights.{}", "crit.out_layers_biases.{}"
    for index in range(len(table_specs(architecture))):
        weight, bias = (name.format(index) for name in theirs)
        biases.append(names[bias])
        names.tied(weight, f"word_emb.emb_layers.{index}.weight")
    weights["output.bias"] = torch.cat(biases)
    if architecture.projected:
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
    for cluster in architecture.clusters:
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
