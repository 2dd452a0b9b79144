"""Loads weights into a `LanguageModel`: our own files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from edgefront.core.errors import InvalidInput
from edgefront.core.graph.parameters import parameters
from edgefront.core.nn.model import LanguageModel
from edgefront.core.spaces.architecture import Architecture


def load_safetensors(path: Path | str) -> LanguageModel:
    """The model of a file that `core.graph.export` wrote: its architecture and its parameters.

    Raises `InvalidInput` where the file is not such a file or a parameter is missing, unknown or of a wrong shape.
    """
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise InvalidInput(f"{path} is not a safetensors file: {error}", field="path", value=str(path)) from error
    if about.get("format") != "edgefront" or "architecture" not in about:
        raise InvalidInput(
            f"{path} does not describe its architecture",
            field="path",
            value=str(path),
            allowed="a safetensors file written by edgefront",
        )
    architecture = Architecture.parse(about["architecture"])
    if about.get("digest") != architecture.digest:
        raise InvalidInput(
            f"{path} names digest {about.get('digest')} but holds architecture {architecture.digest}",
            field="digest",
            value=about.get("digest"),
            allowed=architecture.digest,
        )
    return load(LanguageModel(architecture), weights)


def load(model: LanguageModel, weights: Mapping[str, Tensor]) -> LanguageModel:
    """Makes `weights`, by parameter name, the parameters of `model` (no copy); returns the model.

    Raises `InvalidInput` naming the first parameter that is missing, unknown or of a wrong shape.
    """
    shapes = {spec.name: spec.shape for spec in parameters(model.architecture)}
    for name in sorted(shapes.keys() ^ weights.keys()):
        fault = "is missing" if name in shapes else "is not a parameter of this architecture"
        raise InvalidInput(f"{name} {fault}", field=name, allowed="exactly the parameters of the architecture")
    for name, shape in shapes.items():
        actual = tuple(weights[name].shape)
        if actual != shape:
            raise InvalidInput(f"{name} must be {shape}, not {actual}", field=name, value=actual, allowed=str(shape))
    model.load_state_dict(dict(weights), assign=True)
    return model
