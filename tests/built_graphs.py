"""ONNX models that contain their parameters: of a seed, or given. Files are written in parts instead
(`core.model_files.export`), and what is measured refers to a cache's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, numpy_helper

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.parameters import ParameterSpec
from edgefront.core.model_files import build as product
from edgefront.core.model_files.build import int8_scale, unfilled_model, used_parameters
from edgefront.core.model_files.formats import WeightCache, encode, format_of, int4_scales, quantise_int4
from edgefront.core.model_files.parameter_values import GivenValues
from edgefront.core.model_files.random_values import INT4_SCALE, values
from edgefront.core.model_files.state import GraphOptions


def build(
    architecture: Architecture,
    options: GraphOptions | None = None,
    *,
    weights: WeightCache | Mapping[str, NDArray[Any]] | None = None,
    seed: int = 0,
) -> ModelProto:
    """The model over a cache, or with arrays by parameter name or the values of `seed` inside."""
    options = options or GraphOptions()
    if isinstance(weights, WeightCache):
        return product.build(architecture, options, weights=weights, seed=seed)
    model = unfilled_model(architecture, options)
    for spec in used_parameters(model, architecture):
        model.graph.initializer.extend(_inside(spec, weights, seed, options))
    return model


def _inside(
    spec: ParameterSpec, given: Mapping[str, NDArray[Any]] | None, seed: int, options: GraphOptions
) -> list[TensorProto]:
    array = values(spec, seed) if given is None else given[spec.name]
    full, block_size = options.quantisation == "full", options.block_size
    kind = "full" if full else format_of(spec.name, options.dtype, options.quantisation)
    # Random weights get the scales of the cache, so that a model with and one without a cache are equal.
    if kind == "s7" and given is None:
        return [numpy_helper.from_array(encode(array, kind), spec.name), int8_scale(spec)]
    if kind == "s7":
        scale = GivenValues({spec.name: array}, {}).scale(spec)
        return [numpy_helper.from_array(encode(array, kind, scale), spec.name), int8_scale(spec, scale)]
    if kind == "u4":
        packed, scales = quantise_int4(array, block_size, INT4_SCALE if given is None else None)
        return [
            numpy_helper.from_array(packed, spec.name),
            numpy_helper.from_array(scales, int4_scales(spec, block_size).name),
        ]
    return [numpy_helper.from_array(np.ascontiguousarray(array, np.dtype(options.dtype)), spec.name)]
