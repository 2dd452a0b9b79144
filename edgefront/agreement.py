"""Runs one model from its ONNX and its safetensors file, and says how far the two answers lie apart."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_TOKENS = 64


@dataclass(frozen=True)
class Agreement:
    """Two runtimes on the same tokens. `largest_difference` is over all log-probabilities or logits."""

    tokens: int
    values: int
    largest_difference: float
    same_choices: bool
    """Both find the same next token most probable, at every position."""

    @property
    def holds(self) -> bool:
        """Within what float32 arithmetic explains."""
        return self.largest_difference < 1e-3 and self.same_choices


def compare(onnx_file: Path, safetensors_file: Path, *, vocabulary: int, seed: int = 0) -> Agreement:
    """ONNX Runtime on the one file against PyTorch on the other."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it would report from a thread started on import
    import onnxruntime
    import torch

    from core.nn.load import load_safetensors

    tokens = np.random.default_rng(seed).integers(0, vocabulary, (1, _TOKENS), dtype=np.int64)
    session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
    (from_onnx,) = session.run(["logits"], {"tokens": tokens})
    model = load_safetensors(safetensors_file)
    with torch.inference_mode():
        from_torch = model(torch.from_numpy(tokens)).numpy()
    return Agreement(
        tokens=_TOKENS,
        values=from_onnx.size,
        largest_difference=float(np.abs(from_onnx - from_torch).max()),
        same_choices=bool((from_onnx.argmax(-1) == from_torch.argmax(-1)).all()),
    )
