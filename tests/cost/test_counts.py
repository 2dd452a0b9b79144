"""Counts of parameters: `Shapes` against the list that both builders share, and the list against built models."""

from __future__ import annotations

import math

import pytest
import torch
from descriptions import descriptions
from hypothesis import given

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.cost.weight_bytes import linear_layers
from edgefront.core.architectures.models import named_models
from edgefront.core.architectures.parameters import count, parameters
from edgefront.core.common.number_formats import Quantisation
from edgefront.core.model_files.formats import bytes_of, format_of, int4_scales, int4_shape, is_linear_map
from edgefront.core.nn.model import LanguageModel


def built(architecture: Architecture) -> LanguageModel:
    """The torch model without values."""
    with torch.device("meta"):
        return LanguageModel(architecture)


@given(descriptions())
def test_counts_and_bytes_of_any_description(architecture: Architecture) -> None:
    counts_are_those_of_the_list_of_parameters(architecture)
    counts_are_those_of_the_built_model(architecture)
    weight_bytes_are_those_of_the_files(architecture)


def counts_are_those_of_the_list_of_parameters(architecture: Architecture) -> None:
    shapes = Shapes.of([architecture])
    counted = (shapes.decoder_parameters, shapes.position_parameters, shapes.embedding_parameters)
    assert tuple(int(column[0]) for column in counted) == count(architecture)
    maps = [spec.size for spec in parameters(architecture) if is_linear_map(spec.name)]
    assert (shapes.linear_weights.sum(), linear_layers(shapes)[0]) == (sum(maps), len(maps))


def counts_are_those_of_the_built_model(architecture: Architecture) -> None:
    model, counted = built(architecture), count(architecture)
    assert sum(parameter.numel() for parameter in model.parameters()) == counted.total
    decoder = 0
    for part in (model, model.source):
        if part is not None:
            decoder += sum(parameter.numel() for parameter in part.blocks.parameters())
            if part.final_norm is not None:
                decoder += sum(parameter.numel() for parameter in part.final_norm.parameters())
    assert decoder == counted.decoder


@pytest.mark.parametrize("name", named_models())
def test_named_models_are_counted_as_built(name: str) -> None:
    architecture = named_models()[name].architecture
    model, counted = built(architecture), costs(architecture)
    assert sum(parameter.numel() for parameter in model.parameters()) == counted.total_parameters
    assert sum(p.numel() * p.element_size() for p in model.parameters()) == counted.weight_bytes
    assert counted.digest == architecture.digest


def file_bytes(architecture: Architecture, dtype: str, quantisation: Quantisation) -> int:
    """Bytes of the weights as they are kept for a launch, an int8 tensor with its scale."""
    formats = [(spec.size, format_of(spec.name, dtype, quantisation)) for spec in parameters(architecture)]
    return sum(bytes_of(size, kind) + (4 if kind == "s7" else 0) for size, kind in formats)


def weight_bytes_are_those_of_the_files(architecture: Architecture) -> None:
    options = {"sequence_length": 1}
    for dtype, width in (("float64", 8), ("float32", 4), ("float16", 2), ("bfloat16", 2)):
        found = costs(architecture, CostOptions(dtype=dtype, **options))
        assert found.weight_bytes == width * found.total_parameters
    for dtype in ("float32", "float16", "bfloat16"):
        assert costs(architecture, CostOptions(dtype=dtype, **options)).weight_bytes == file_bytes(
            architecture, dtype, "full"
        )
    assert costs(architecture, CostOptions(weights="int8", **options)).weight_bytes == file_bytes(
        architecture, "float32", "int8"
    )
    for size in (16, 32, 128):
        found = costs(architecture, CostOptions(weights="int4", block_size=size, **options))
        assert found.weight_bytes == int4_file_bytes(architecture, size)


def int4_file_bytes(architecture: Architecture, block_size: int) -> int:
    """The same in int4: linear layers with their scales, all others in float32."""
    total = 0
    for spec in parameters(architecture):
        if is_linear_map(spec.name):
            total += math.prod(int4_shape(spec, block_size)) + bytes_of(int4_scales(spec, block_size).size, "f32")
        else:
            total += bytes_of(spec.size, "f32")
    return total
