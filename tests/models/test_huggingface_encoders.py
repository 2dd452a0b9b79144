"""The same weights give the same outputs as Hugging Face transformers' BERT and DistilBERT, in torch and ONNX Runtime.

With segments (BERT) and padding, and every head that the description has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from built_graphs import build
from foreign_models import difference, gradient_differences, randomised, transformers, twin_of
from loaders import from_bert, from_distilbert
from numpy.typing import NDArray
from passes import inputs
from tiny_models import onnx_session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.model_files.state import GraphOptions

LAYERS, HEADS, WIDTH, INNER, VOCABULARY, LENGTH, CLASSES = 3, 4, 48, 100, 211, 40, 5


def encoder(segments: int, **output: Any) -> Architecture:
    """BERT's shape, or without segments DistilBERT's."""
    layer = [{"kind": "attention", "n_head": HEADS}, {"kind": "feed_forward", "d_inner": INNER}]
    return Architecture.parse(
        {
            "d_model": WIDTH,
            "causal": False,
            "norm": "post",
            "norm_eps": "1e-12",
            "activation": "gelu",
            "positions": {"kind": "learned", "length": LENGTH},
            "embedding": {"vocab_size": VOCABULARY, "segments": segments, "norm": True},
            "blocks": layer * LAYERS,
            "output": output,
        }
    )


def _bert(head: str, **arguments: Any) -> Any:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, max_position_embeddings=LENGTH, hidden_size=WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, intermediate_size=INNER,
        num_labels=CLASSES if "Sequence" in head else 2,  # type: ignore[call-arg]
    )  # fmt: skip
    return getattr(transformers, head)(config, **arguments)


def _distilbert(head: str) -> Any:
    config = transformers.DistilBertConfig(
        vocab_size=VOCABULARY, max_position_embeddings=LENGTH, dim=WIDTH, n_layers=LAYERS, n_heads=HEADS,
        hidden_dim=INNER,
    )  # fmt: skip
    return getattr(transformers, head)(config)


def _spans(answer: Any) -> torch.Tensor:
    return torch.stack([answer.start_logits, answer.end_logits], -1)


Case = tuple[Callable[[], Any], Architecture, Any, Callable[[Any], torch.Tensor]]
MODELS: dict[str, Case] = {
    "bert": (
        lambda: _bert("BertModel", add_pooling_layer=False),
        encoder(2, kind="none"), from_bert, lambda answer: answer.last_hidden_state,
    ),
    "bert pooled": (
        lambda: _bert("BertModel"), encoder(2, kind="pooled"), from_bert, lambda answer: answer.pooler_output,
    ),
    "bert masked tokens": (
        lambda: _bert("BertForMaskedLM"), encoder(2, kind="masked_tokens"), from_bert, lambda answer: answer.logits,
    ),
    "bert classes": (
        lambda: _bert("BertForSequenceClassification"),
        encoder(2, kind="classes", classes=CLASSES), from_bert, lambda answer: answer.logits,
    ),
    "bert spans": (lambda: _bert("BertForQuestionAnswering"), encoder(2, kind="spans"), from_bert, _spans),
    "distilbert": (
        lambda: _distilbert("DistilBertModel"),
        encoder(0, kind="none"), from_distilbert, lambda answer: answer.last_hidden_state,
    ),
    "distilbert masked tokens": (
        lambda: _distilbert("DistilBertForMaskedLM"),
        encoder(0, kind="masked_tokens"), from_distilbert, lambda answer: answer.logits,
    ),
    "distilbert spans": (
        lambda: _distilbert("DistilBertForQuestionAnswering"), encoder(0, kind="spans"), from_distilbert, _spans,
    ),
}  # fmt: skip


def _inputs(ours: Architecture, batch: int, sequence: int) -> dict[str, NDArray[Any]]:
    """Tokens, segments where there are any, and a mask with padding at the end, all in our names."""
    mask = np.arange(sequence) < np.array([[sequence - 3 * row] for row in range(batch)])
    return {**inputs(ours, batch, sequence), "mask": mask}


def _tensors(inputs: dict[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value) for name, value in inputs.items()}


def _theirs(theirs: Any, inputs: dict[str, torch.Tensor]) -> Any:
    names = {"tokens": "input_ids", "segments": "token_type_ids", "mask": "attention_mask"}
    return theirs(**{names[name]: value.long() for name, value in inputs.items()})


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("dtype", "within"), [("float64", 1e-9), ("float32", 1e-5)])
def test_outputs_are_theirs(name: str, dtype: str, within: float) -> None:
    make, ours, rename, read = MODELS[name]
    theirs = randomised(make(), dtype)
    twin = twin_of(theirs, ours, rename)
    weights = {key: value.numpy() for key, value in rename(theirs.state_dict(), ours).items()}
    session = onnx_session(build(ours, GraphOptions(dtype=dtype), weights=weights))
    for batch, sequence in ((1, LENGTH), (3, 11)):
        given = _inputs(ours, batch, sequence)
        with torch.inference_mode():
            expected = read(_theirs(theirs, _tensors(given))).numpy()
            outputs = twin(**_tensors(given)).numpy()
            assert difference(outputs, expected) < within
            del given["mask"]  # files take whole batches
            expected = read(_theirs(theirs, _tensors(given))).numpy()
        (in_onnx,) = session.run(None, given)
        assert difference(in_onnx, expected) < within


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_theirs(name: str) -> None:
    make, ours, rename, read = MODELS[name]
    theirs = randomised(make())
    twin = twin_of(theirs, ours, rename)
    tensors = _tensors(_inputs(ours, 2, 9))
    expected, outputs = read(_theirs(theirs, tensors)), twin(**tensors)
    direction = torch.randn(expected.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    (expected * direction).sum().backward()
    (outputs * direction).sum().backward()
    assert max(gradient_differences(theirs, twin, rename).values()) < 1e-9
