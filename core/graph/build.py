"""An architecture as an ONNX model, written directly: milliseconds, and no torch on the device.

Input `tokens`, int64 [batch, sequence], both free. Output, by `logits`:

- "all": `logits` [batch, sequence, vocab_size]
- "last": `logits` [batch, vocab_size], of the last position alone
- "none": `hidden` [batch, sequence, d_model], after the final norm

`logits` are log-probabilities where the embedding is adaptive (see `core.graph.output`), and in any case numbers whose
softmax is the distribution over the vocabulary in token order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from core.graph.blocks import block_graph
from core.graph.embedding import write_embedding
from core.graph.output import write_output
from core.graph.parameter import ParameterSpec
from core.graph.parameters import parameters
from core.graph.weights import ITEM_BYTES, WeightCache, values
from core.graph.writer import IR_VERSION, OPSET, Dtype, GraphWriter
from core.spaces.architecture import Architecture

Logits = Literal["all", "last", "none"]


def build(
    architecture: Architecture,
    *,
    logits: Logits = "all",
    dtype: Dtype = "float32",
    weights: WeightCache | Mapping[str, NDArray[Any]] | None = None,
    seed: int = 0,
) -> ModelProto:
    """The model with its weights: mapped from a cache, given by name, or (None) made from `seed` and kept inside.

    With a cache the model holds only references, relative to the cache's folder, and a session over it maps the files:

        options.add_session_config_entry(EXTERNAL_FOLDER, str(cache.folder))
        session = onnxruntime.InferenceSession(build(..., weights=cache).SerializeToString(), options)

    ONNX Runtime copies the weights of its linear maps once more into packed form while the session is made (and lets
    go of the mapped ones), unless told not to by `session.disable_prepacking`: about 9 % slower on 16 layers of 512
    features and 192 tokens, with a tenth of the anonymous memory. Embedding tables stay mapped.

    The protobuf limit of 2 GiB holds for weights that are kept inside; float64 cannot come from a cache.
    """
    model = unfilled_model(architecture, logits=logits, dtype=dtype)
    if isinstance(weights, WeightCache):
        if dtype != "float32":
            raise ValueError("the weight cache holds float32; give other types by name or by seed")
        weights.touch(seed)
        tensors = [_reference(spec, weights, seed) for spec in parameters(architecture)]
    else:
        tensors = [_inside(spec, weights, seed, np.dtype(dtype)) for spec in parameters(architecture)]
    model.graph.initializer.extend(tensors)
    return model


EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"
"""ONNX Runtime's session setting for the folder that external weights are relative to, for a model given as bytes."""


def unfilled_model(architecture: Architecture, *, logits: Logits = "all", dtype: Dtype = "float32") -> ModelProto:
    """The model without its parameters: its nodes name them, and initializers of these names have to be added."""
    return helper.make_model(
        _graph(architecture, logits, dtype),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="edgefront",
    )


def _graph(architecture: Architecture, logits: Logits, dtype: Dtype) -> GraphProto:
    graph = GraphWriter(dtype)
    d_model, vocabulary = architecture.d_model, architecture.embedding.vocab_size
    hidden = write_embedding(graph, architecture)
    for index, block in enumerate(architecture.blocks):
        prefix = f"blocks.{index}"
        with graph.within(prefix):
            hidden = block_graph(block).write(graph, block, architecture, prefix, hidden)
    if logits == "last":
        hidden = graph.op("Gather", graph.unflatten(hidden, d_model), graph.integer(-1), axis=1)
    hidden = graph.norm(hidden, "final_norm")
    if logits == "none":
        return graph.graph(graph.unflatten(hidden, d_model), "hidden", ["batch", "sequence", d_model])
    scores = write_output(graph, architecture, hidden)
    if logits == "last":
        return graph.graph(scores, "logits", ["batch", vocabulary])
    return graph.graph(graph.unflatten(scores, vocabulary), "logits", ["batch", "sequence", vocabulary])


def _reference(spec: ParameterSpec, cache: WeightCache, seed: int) -> TensorProto:
    cache.file(spec, seed)
    tensor = TensorProto(name=spec.name, dims=spec.shape, data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", cache.location(spec, seed)), ("length", str(spec.size * ITEM_BYTES))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def _inside(
    spec: ParameterSpec, given: Mapping[str, NDArray[Any]] | None, seed: int, dtype: np.dtype[Any]
) -> TensorProto:
    array = values(spec, seed) if given is None else given[spec.name]
    if array.shape != spec.shape:
        raise ValueError(f"{spec.name} must be {spec.shape}, not {array.shape}")
    return numpy_helper.from_array(np.ascontiguousarray(array, dtype), spec.name)
