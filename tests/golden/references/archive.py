"""Writes a golden case: NAME.npz with the arrays and NAME.json with what describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch


def randomise(module: torch.nn.Module, generator: torch.Generator) -> None:
    """Draws every parameter anew, so that no norm, bias or factor is left at a value that hides it.

    Values are rounded to float16: the files stay small, and what is stored is what was computed with. Norm weights lie
    around one, matrices are scaled by their inputs so that no softmax saturates.
    """
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "layer_norm.weight" in name:
                drawn = 1 + 0.3 * _normal(parameter, generator)
            elif parameter.dim() == 1:
                drawn = 0.5 * _normal(parameter, generator)
            else:
                drawn = 1.2 * _normal(parameter, generator) / min(parameter.shape) ** 0.5
            parameter.copy_(drawn.to(torch.float16))


def draw(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """A float64 tensor of normal values that float16 holds exactly."""
    return _normal(torch.empty(shape), generator).to(torch.float16).to(torch.float64)


def write(folder: Path, name: str, arrays: Mapping[str, Any], description: Mapping[str, Any]) -> None:
    """Writes one case; each array in the narrowest float type that holds every value exactly."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = {key: _narrowest(_array(value)) for key, value in arrays.items()}
    np.savez_compressed(folder / f"{name}.npz", allow_pickle=False, **stored)
    (folder / f"{name}.json").write_text(json.dumps(description, indent=2) + "\n")


def assert_close(actual: Any, expected: Any, what: str, within: float = 1e-12) -> None:
    """Raises where the largest difference is more than `within` of the largest expected value."""
    a, b = _array(actual), _array(expected)
    if a.shape != b.shape:
        raise AssertionError(f"{what}: shapes {a.shape} and {b.shape}")
    if a.size and not abs(a - b).max() <= within * max(1.0, float(abs(b).max())):
        raise AssertionError(f"{what}: differs by {abs(a - b).max():.2e}")


def _normal(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(like.shape, generator=generator, dtype=torch.float64)


def _array(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value.detach() if isinstance(value, torch.Tensor) else value)


def _narrowest(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype.kind != "f":
        return array
    for dtype in (np.float16, np.float32):
        with np.errstate(over="ignore"):
            narrow = array.astype(dtype)
        if np.array_equal(narrow.astype(array.dtype), array):
            return narrow
    return array
