"""DistilBERT as Hugging Face transformers keeps it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from edgefront.core.spaces.architecture import Architecture
from loaders.foreign import ForeignState, Weights, check_output, layers, token_output

_HEADS = (r"vocab_.*", r"pre_classifier\..*", r"classifier\..*", r"qa_outputs\..*")


def from_distilbert(state: Mapping[str, Tensor], architecture: Architecture) -> Weights:
    """Renames the state dict of a `DistilBertModel`, `DistilBertForMaskedLM` or `DistilBertForQuestionAnswering`.

    It is BERT without segments and pooler (Sanh et al. 2019, §3): output kinds none, masked_tokens and spans. Its
    classifier has a ReLU where BERT's pooler has a tanh; no description says that, so kind classes is refused.
    """
    check_output(architecture, "DistilBERT", "none", "masked_tokens", "spans")
    names = ForeignState(state, "distilbert.")
    weights = {
        "embedding.tables.0": names["embeddings.word_embeddings.weight"],
        "positions.weight": names["embeddings.position_embeddings.weight"],
    }
    weights |= names.pair("embedding.norm", "embeddings.LayerNorm")
    for layer, attention, feed_forward in layers(architecture, "DistilBERT"):
        source = f"transformer.layer.{layer}"
        weights |= names.joined(f"{attention}.qkv", [f"{source}.attention.{letter}_lin" for letter in "qkv"])
        weights |= names.pair(f"{attention}.out", f"{source}.attention.out_lin")
        weights |= names.pair(f"{attention}.norm", f"{source}.sa_layer_norm")
        weights |= names.pair(f"{feed_forward}.up", f"{source}.ffn.lin1")
        weights |= names.pair(f"{feed_forward}.down", f"{source}.ffn.lin2")
        weights |= names.pair(f"{feed_forward}.norm", f"{source}.output_layer_norm")
    if architecture.output.kind == "masked_tokens":
        weights |= names.pair("output.transform", "vocab_transform")
        weights |= names.pair("output.transform_norm", "vocab_layer_norm")
        weights["output.bias"] = names["vocab_projector.bias"]
        weights |= token_output(names, architecture, "vocab_projector.weight", "embeddings.word_embeddings.weight")
    if architecture.output.kind == "spans":
        weights |= names.pair("output.spans", "qa_outputs")
    names.finish(*_HEADS, r"embeddings\.position_ids")
    return weights
