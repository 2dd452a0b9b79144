"""Small architectures, weights for them, and an ONNX session over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from onnx import ModelProto

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.parameters import parameters
from edgefront.core.model_files.build import EXTERNAL_FOLDER
from edgefront.core.model_files.formats import WeightCache
from edgefront.core.model_files.random_values import values

LENGTH = 24


def architecture(**changes: Any) -> Architecture:
    """Two unequal layers over 97 tokens; any top-level field can be given anew."""
    blocks = [
        {"kind": "attention", "n_head": 4},
        {"kind": "feed_forward", "d_inner": 40},
        {"kind": "attention", "n_head": 2},
        {"kind": "feed_forward", "d_inner": 24},
    ]
    description = {
        "d_model": 16,
        "positions": {"kind": "learned", "length": LENGTH},
        "embedding": {"vocab_size": 97},
        "blocks": blocks,
    }
    return Architecture.parse({**description, **changes})


def adaptive(output: Mapping[str, Any] | None = None, **changes: Any) -> Architecture:
    """The same with three clusters of widths 16, 4 and 1; `changes` are to the embedding."""
    embedding = {"vocab_size": 97, "cutoffs": [20, 50], "div": 4, **changes}
    return architecture(embedding=embedding, output=output or {"kind": "tokens"})


def tiny_llama(vocab_size: int) -> Architecture:
    """One layer of Llama's blocks."""
    layer = [
        {"kind": "attention", "n_head": 2, "n_kv_head": 1, "bias": "none"},
        {"kind": "feed_forward", "d_inner": 32, "gated": True, "bias": False},
    ]
    ends = {"positions": {"kind": "rotary"}, "norm_kind": "rms", "activation": "silu"}
    return Architecture.parse({"d_model": 32, **ends, "embedding": {"vocab_size": vocab_size}, "blocks": layer})


def lively_weights(model: Architecture, seed: int, dtype: str = "float32") -> dict[str, NDArray[Any]]:
    """Weights by name in which nothing is one, zero or tiny, so that no mistake in any of them goes unseen."""
    rng = np.random.default_rng(seed)
    weights = {}
    for spec in parameters(model):
        noise = rng.normal(0, 0.2, spec.shape)
        weights[spec.name] = (noise + (spec.fill == "ones")).astype(dtype)
    return weights


def seeded_weights(model: Architecture, seed: int) -> dict[str, NDArray[np.float32]]:
    return {spec.name: values(spec, seed) for spec in parameters(model)}


def as_tensors(weights: Mapping[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value) for name, value in weights.items()}


def random_tokens(model: Architecture, batch: int, sequence: int, seed: int = 0) -> NDArray[np.int64]:
    """Tokens of every cluster, [batch, sequence]."""
    return np.random.default_rng(seed).integers(0, model.embedding.vocab_size, (batch, sequence))


def onnx_session(model: ModelProto | str, cache: WeightCache | None = None) -> ort.InferenceSession:
    """A session on one CPU thread; `model` is a model or the path of a file."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if cache is not None:
        options.add_session_config_entry(EXTERNAL_FOLDER, str(cache.folder))
    source = model if isinstance(model, str) else model.SerializeToString()
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def run_onnx(session: ort.InferenceSession, tokens: NDArray[np.int64]) -> NDArray[Any]:
    (output,) = session.run(None, {"tokens": tokens})
    return np.asarray(output)


def apart(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    """Norm of the difference, relative to the expected."""
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))
