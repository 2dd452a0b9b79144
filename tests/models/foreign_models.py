"""Comparing a model of ours with another library's of the same weights: values, and gradients by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load

Rename = Callable[[Mapping[str, torch.Tensor], Architecture], dict[str, torch.Tensor]]

with warnings.catch_warnings():
    # transformers' own modules use what newer versions of their dependencies deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", FutureWarning)
    import transformers

__all__ = ["difference", "gradient_differences", "randomised", "transformers", "twin_of"]


def randomised(theirs: Any, dtype: str = "float64", seed: int = 3) -> Any:
    """The model with noise on every parameter: its makers leave norms at one and biases at zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.empty_like(parameter).normal_(0, 0.1, generator=generator))
    return theirs.eval().to(getattr(torch, dtype))


def twin_of(theirs: Any, ours: Architecture, rename: Rename) -> LanguageModel:
    """Our model of `ours` with the weights of `theirs`."""
    return load(LanguageModel(ours), rename(theirs.state_dict(), ours)).eval()


def difference(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    """Largest difference, relative to the largest expected value."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    return float(abs(actual - expected).max() / abs(expected).max())


def gradient_differences(theirs: Any, twin: LanguageModel, rename: Rename) -> dict[str, float]:
    """By our names, after a backward pass through both: the same renaming takes gradients to gradients, apart from what
    it adds (Gemma 3 stores gains less one).
    """
    every = dict(theirs.named_parameters(remove_duplicate=False))
    given = {name: value.grad for name, value in every.items() if value.grad is not None}
    of_nothing = rename({name: torch.zeros_like(value) for name, value in given.items()}, twin.architecture)
    expected = {name: value - of_nothing[name] for name, value in rename(given, twin.architecture).items()}
    gradients = {name: value.grad for name, value in twin.named_parameters()}
    assert gradients.keys() == expected.keys()
    assert not [name for name, value in gradients.items() if value is None]
    assert min(float(value.abs().max()) for value in expected.values()) > 0
    # Some gradients are zero but for rounding (of a key's bias: softmax does not see it), so the scale is all of them.
    scale = max(float(value.abs().max()) for value in expected.values())
    return {name: float((gradients[name] - value).abs().max()) / scale for name, value in expected.items()}
