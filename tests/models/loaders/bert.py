"""BERT as Hugging Face transformers keeps it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from edgefront.core.spaces.architecture import Architecture
from loaders.foreign import ForeignState, Weights, check_output, layers, token_output

_HEADS = (r"pooler\..*", r"cls\..*", r"classifier\..*", r"qa_outputs\..*")
_BUFFERS = (r"embeddings\.(position_ids|token_type_ids)",)  # that older versions stored


def from_bert(state: Mapping[str, Tensor], architecture: Architecture) -> Weights:
    """Renames the state dict of a `BertModel` or one of its wrappers; queries, keys and values become one map.

    The output kind says which head is read: none (`BertModel`), pooled (with its pooler), masked_tokens
    (`BertForMaskedLM`), classes (`BertForSequenceClassification`) or spans (`BertForQuestionAnswering`). Heads that the
    architecture does not have are left out.
    """
    check_output(architecture, "BERT", "none", "pooled", "masked_tokens", "classes", "spans")
    names = ForeignState(state, "bert.")
    weights = {
        "embedding.tables.0": names["embeddings.word_embeddings.weight"],
        "embedding.segments": names["embeddings.token_type_embeddings.weight"],
        "positions.weight": names["embeddings.position_embeddings.weight"],
    }
    weights |= names.pair("embedding.norm", "embeddings.LayerNorm")
    for layer, attention, feed_forward in layers(architecture, "BERT"):
        source = f"encoder.layer.{layer}"
        maps = [f"{source}.attention.self.{part}" for part in ("query", "key", "value")]
        weights |= names.joined(f"{attention}.qkv", maps)
        weights |= names.pair(f"{attention}.out", f"{source}.attention.output.dense")
        weights |= names.pair(f"{attention}.norm", f"{source}.attention.output.LayerNorm")
        weights |= names.pair(f"{feed_forward}.up", f"{source}.intermediate.dense")
        weights |= names.pair(f"{feed_forward}.down", f"{source}.output.dense")
        weights |= names.pair(f"{feed_forward}.norm", f"{source}.output.LayerNorm")
    weights |= _head(names, architecture)
    names.finish(*_HEADS, *_BUFFERS)
    return weights


def _head(names: ForeignState, architecture: Architecture) -> Weights:
    weights: Weights = {}
    match architecture.output.kind:
        case "masked_tokens":
            weights |= names.pair("output.transform", "cls.predictions.transform.dense")
            weights |= names.pair("output.transform_norm", "cls.predictions.transform.LayerNorm")
            table = "embeddings.word_embeddings.weight"
            weights |= token_output(names, architecture, "cls.predictions.decoder.weight", table)
            weights["output.bias"] = names["cls.predictions.bias"]
            names.tied("cls.predictions.decoder.bias", "cls.predictions.bias")
        case "pooled" | "classes":
            weights |= names.pair("output.pooler", "pooler.dense")
            if architecture.output.kind == "classes":
                weights |= names.pair("output.classes", "classifier")
        case "spans":
            weights |= names.pair("output.spans", "qa_outputs")
    return weights
