"""Runs every named model at full size in both runtimes, and prints the difference between their outputs.

    python scripts/check_named_models.py [NAME ...] [--weights FOLDER]

For each model one graph per mode with the weights of one seed: a whole sequence, and prefill followed by decoding, at
two batch sizes and lengths, against the torch model. Differences are relative to the largest output. Weights are stored
in FOLDER (temporary by default) and take about 9 GB of disk for all models; the largest model takes 14 GB of memory.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / "models"), str(ROOT / "tests"), str(ROOT)]

import numpy as np  # noqa: E402
from passes import in_onnx, in_torch, inputs, onnx_pieces  # noqa: E402
from tiny_models import onnx_session  # noqa: E402

from edgefront.core.architectures.architecture import Architecture  # noqa: E402
from edgefront.core.architectures.models import named_models  # noqa: E402
from edgefront.core.model_files.build import build  # noqa: E402
from edgefront.core.model_files.formats import WeightCache  # noqa: E402
from edgefront.core.model_files.state import GraphOptions  # noqa: E402
from edgefront.core.nn.model import LanguageModel  # noqa: E402
from edgefront.core.nn.weights import fill  # noqa: E402

SHAPES = [(1, 24), (3, 11)]
PREFILL = 7
WITHIN = 1e-4


def check(model: Architecture, cache: WeightCache, seed: int = 0) -> dict[str, float]:
    """Returns the largest relative difference between ONNX and torch outputs, by mode."""
    twin = fill(LanguageModel(model), seed, cache).eval()
    given = [inputs(model, *shape) for shape in SHAPES]
    expected = [in_torch(twin, feed) for feed in given]
    del twin

    def apart(outputs: list[Any]) -> float:
        return max(float(abs(a - b).max() / abs(b).max()) for a, b in zip(outputs, expected, strict=True))

    def session(mode: Any) -> Any:
        gc.collect()
        return onnx_session(build(model, GraphOptions(mode=mode), weights=cache, seed=seed), cache)

    whole = session("forward")
    result = {"forward": apart([in_onnx(whole, feed)[0] for feed in given])}
    del whole
    if model.causal:
        prefill = session("prefill")
        starts = [in_onnx(prefill, {**feed, "tokens": feed["tokens"][:, :PREFILL]}) for feed in given]
        del prefill
        decode = session("decode")
        decoded = []
        for feed, (first, state) in zip(given, starts, strict=True):
            tokens = feed["tokens"]
            rest = onnx_pieces(decode, {"tokens": tokens}, state, range(PREFILL + 1, tokens.shape[1]), at=PREFILL)
            decoded.append(np.concatenate((first, rest), 1))
        result["decode"] = apart(decoded)
    return result


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    models = named_models()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(models), metavar="NAME")
    parser.add_argument("--weights", type=Path)
    options = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        cache = WeightCache(options.weights or folder)
        for name in options.names:
            apart = check(models[name].architecture, cache)
            ok = max(apart.values()) < WITHIN
            failed += [] if ok else [name]
            figures = ", ".join(f"{mode} {value:.1e}" for mode, value in apart.items())
            _say(f"{'agrees' if ok else 'DIFFERS'}  {name}: {figures}")
    _say(f"{len(options.names) - len(failed)} of {len(options.names)} agree within {WITHIN:g}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
