"""Runs one model from its ONNX and its safetensors file, and compares the outputs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.errors import InvalidInput

if TYPE_CHECKING:
    from edgefront.core.spaces.architecture import Architecture

_TOKENS = 64
# The axis of an output's argmax: the last, or, for spans, the positions.
_CHOICE_AXIS = {"tokens": -1, "masked_tokens": -1, "classes": -1, "spans": 1}


@dataclass(frozen=True)
class Agreement:
    """The comparison of two runtimes on the same tokens. `largest_difference` is over all values of the output."""

    tokens: int
    values: int
    largest_difference: float
    same_choices: bool
    """Whether both have the same most probable token, class or position; True for other outputs."""

    @property
    def holds(self) -> bool:
        """Whether the difference is within float32 rounding errors."""
        return self.largest_difference < 1e-3 and self.same_choices


def compare(onnx_file: Path, safetensors_file: Path, *, seed: int = 0) -> Agreement:
    """ONNX Runtime on the one file against PyTorch on the other, over 64 random tokens (fewer if it supports fewer).

    Raises `InvalidInput` if the ONNX file has inputs that a forward pass does not have, such as state.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # telemetry would upload from a thread that starts on import
    import onnxruntime
    import torch

    from edgefront.core.nn.load import load_safetensors

    model = load_safetensors(safetensors_file)
    session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
    inputs = _inputs(model.architecture, seed)
    for declared in session.get_inputs():
        if declared.name not in inputs:
            raise InvalidInput(
                f"{onnx_file} has an input {declared.name}, which a forward pass of this architecture does not have",
                field=declared.name,
                value=str(onnx_file),
                allowed=", ".join(inputs),
            )
    names = [output.name for output in session.get_outputs()]
    (from_onnx,) = session.run(names, inputs)
    with torch.inference_mode():
        tensors = {name.removesuffix("_tokens"): torch.from_numpy(value) for name, value in inputs.items()}
        from_torch = model(**tensors, logits="none" if names == ["hidden"] else "all").numpy()
    axis = None if names == ["hidden"] else _CHOICE_AXIS.get(model.architecture.output.kind)
    return Agreement(
        tokens=inputs["tokens"].size,
        values=from_onnx.size,
        largest_difference=float(np.abs(from_onnx - from_torch).max()),
        same_choices=axis is None or bool((from_onnx.argmax(axis) == from_torch.argmax(axis)).all()),
    )


def _inputs(architecture: Architecture, seed: int) -> dict[str, NDArray[Any]]:
    """Random tokens, segments and source tokens, by the names of the graph's inputs; [1, sequence] each."""
    random = np.random.default_rng(seed)

    def draw(part: Architecture, below: int) -> NDArray[Any]:
        return random.integers(0, below, (1, min(_TOKENS, part.max_length or _TOKENS)), dtype=np.int64)

    inputs = {"tokens": draw(architecture, architecture.embedding.vocab_size)}
    if architecture.embedding.segments:
        inputs["segments"] = draw(architecture, architecture.embedding.segments)
    if architecture.source is not None:
        inputs["source_tokens"] = draw(architecture.source, architecture.source.embedding.vocab_size)
    return inputs
