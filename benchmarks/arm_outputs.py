"""What this processor computes: random weights and logits of small models of every kind, in every format of the
installed runtimes. `arm.py` runs it on two processors and compares.

    python benchmarks/arm_outputs.py FILE.npz

The file has an array for each model and format, `MODEL/FORMAT`: log-probabilities, or the SHA-256 of what has to be
the same bit for bit (`random weights`, and what ONNX and GGUF files have of them).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from format_outputs import Scores, Weights, in_llamacpp, in_onnxruntime, in_pytorch
from numpy.typing import NDArray
from onnx import numpy_helper

from edgefront.core.graph.build import build
from edgefront.core.graph.options import GraphOptions
from edgefront.core.graph.parameters import parameters
from edgefront.core.graph.random_values import values
from edgefront.core.measurement.runtimes import not_installed
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.gguf import gguf_fault

MODELS = Path(__file__).parents[1] / "tests" / "golden" / "digests.json"
LENGTH, SCORED = 32, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    chosen = parser.parse_args()
    arrays: dict[str, NDArray[Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for title, model in models():
            weights = {spec.name: values(spec, 0) for spec in parameters(model)}
            for name, array in outputs(model, weights, Path(folder)):
                arrays[f"{title}/{name}"] = array
            print(title, flush=True)
    np.savez(chosen.file, **arrays)


def models() -> Iterator[tuple[str, Architecture]]:
    """Those that read one text and predict its next token."""
    for entry in json.loads(MODELS.read_text()):
        model = Architecture.parse(entry["given"])
        if model.causal and model.source is None:
            yield entry["title"].replace("/", " "), model


def outputs(model: Architecture, weights: Weights, folder: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    text = np.random.default_rng(0).integers(0, model.embedding.vocab_size, LENGTH)
    yield "random weights", sha256(*(weights[name].tobytes() for name in sorted(weights)))
    formats: dict[str, Scores] = {}
    choices: dict[str, dict[str, Any]] = {
        "": {},
        " int8": {"quantisation": "int8"},
        " int4": {"quantisation": "int4"},
    }
    for name, choice in choices.items():
        graph = build(model, GraphOptions(**choice), weights=weights)
        tensors = (numpy_helper.to_array(tensor) for tensor in graph.graph.initializer)
        # Tables of frequencies are float64: numpy's powers differ by their last bit from one processor to another.
        yield f"ONNX tensors{name}", sha256(*(tensor.tobytes() for tensor in tensors if tensor.dtype != np.float64))
        if not_installed("onnxruntime") is None:
            formats[f"onnxruntime {name.strip() or 'float32'}"] = in_onnxruntime(model, weights, **choice)
    if not_installed("pytorch") is None:
        formats["pytorch float32"] = in_pytorch(model, weights)
        formats["pytorch int8"] = in_pytorch(model, weights, int8=True)
    if not_installed("llamacpp") is None:
        for numbers in ("float32", "q8_0"):
            if gguf_fault(model, numbers) is None:
                formats[f"llamacpp {numbers}"] = in_llamacpp(model, weights, numbers, folder, LENGTH)
                yield f"GGUF file {numbers}", sha256((folder / f"{model.digest}-{numbers}.gguf").read_bytes())
    for name, scores in formats.items():
        yield name, scores(text, SCORED)


def sha256(*parts: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(hashlib.sha256(b"".join(parts)).digest(), np.uint8)


if __name__ == "__main__":
    main()
