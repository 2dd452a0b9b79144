"""Runs a model over a sequence whole or in pieces, in torch and in ONNX Runtime, over the same named inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_models import as_tensors, lively_weights, random_tokens

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.model_files.state import CacheType, state_specs
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load

Arrays = dict[str, NDArray[Any]]


def lively_model(model: Architecture, seed: int = 1, dtype: str = "float64") -> LanguageModel:
    """The torch model with weights in which nothing is zero or tiny."""
    return load(LanguageModel(model), as_tensors(lively_weights(model, seed, dtype))).eval()


def inputs(model: Architecture, batch: int, sequence: int, *, segments: bool = True, source: int = 5) -> Arrays:
    """By the names of the graph's inputs; `segments` where the model has them."""
    given = {"tokens": random_tokens(model, batch, sequence)}
    if model.embedding.segments and segments:
        given["segments"] = np.random.default_rng(1).integers(0, model.embedding.segments, (batch, sequence))
    if model.source is not None:
        given["source_tokens"] = random_tokens(model.source, batch, source, seed=2)
    return given


def in_torch(twin: LanguageModel, given: Arrays, **settings: Any) -> NDArray[Any]:
    """One pass without state."""
    tensors = {name.removesuffix("_tokens"): torch.from_numpy(value) for name, value in given.items()}
    with torch.inference_mode():
        outputs: NDArray[Any] = twin(tensors.pop("tokens"), **tensors, **settings).numpy()
    return outputs


def in_onnx(session: ort.InferenceSession, given: Arrays) -> tuple[NDArray[Any], Arrays]:
    """What comes out, and the state for the next pass under the names of its entries."""
    names = [output.name for output in session.get_outputs()]
    first, *state = session.run(None, given)
    return np.asarray(first), {name.removeprefix("next."): value for name, value in zip(names[1:], state, strict=True)}


def torch_pieces(
    twin: LanguageModel, given: Arrays, form: CacheType, cuts: Sequence[int], **settings: Any
) -> NDArray[Any]:
    """The sequence in pieces that end at `cuts`, each with the state after the one before; [batch, sequence, …]."""
    tokens, source = torch.from_numpy(given["tokens"]), given.get("source_tokens")
    state, parts, at = twin.init_cache(tokens.shape[0], form), [], 0
    with torch.inference_mode():
        for cut in (*cuts, tokens.shape[1]):
            extra = {} if source is None or at else {"source": torch.from_numpy(source)}
            part, state = twin(tokens[:, at:cut], cache=state, **extra, **settings)
            parts.append(part)
            at = cut
    return torch.cat(parts, 1).numpy()


def onnx_pieces(
    session: ort.InferenceSession, given: Arrays, state: Arrays, cuts: Sequence[int], at: int = 0
) -> NDArray[Any]:
    """The same from place `at` on in a graph that takes state in and out, beginning with `state`."""
    parts, tokens = [], given["tokens"]
    for cut in (*cuts, tokens.shape[1]):
        part, state = in_onnx(session, {**given, "tokens": tokens[:, at:cut], **state})
        parts.append(part)
        at = cut
    return np.concatenate(parts, 1)


def empty_state(model: Architecture, form: CacheType, batch: int, dtype: str) -> Arrays:
    """The state before the first token, for ONNX."""
    return {
        spec.name: np.zeros(spec.sizes(batch, 0), "int64" if spec.integer else dtype)
        for spec in state_specs(model, form)
    }


def cuts(sequence: int) -> st.SearchStrategy[list[int]]:
    """Places at which to cut a sequence into pieces, in order; none, some or all."""
    some = st.sets(st.integers(1, sequence - 1)).map(sorted)
    return some | st.just(list(range(1, sequence)))


def masks(draw: st.DrawFn, batch: int, length: int) -> NDArray[np.bool_]:
    """[batch, length]: True for some places of each row, at the front, at the end or scattered; at least one."""
    mask = np.zeros((batch, length), bool)
    for row in mask:
        count = draw(st.integers(1, length))
        how = draw(st.sampled_from(["front", "end", "scattered"]))
        places = np.arange(count) if how == "front" else np.arange(length - count, length)
        row[np.random.default_rng(count).permutation(length)[:count] if how == "scattered" else places] = True
    return mask
