"""Golden cases of SRU as sru 2.6.0 computes it, in float64.

    pip install --no-deps --target REF sru==2.6.0
    PYTHONPATH=REF python make_sru.py OUT                # g++ and ninja on PATH: the package compiles at import

With gradients on, the package's plain Python recurrence runs, in float64; its compiled operator knows float32 only and
is checked against the result.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from archive import assert_close, draw, randomise, write

VERSION = "2.6.0"
BATCH, LENGTH, SEGMENTS = 2, 7, 2
COMMON = {"input_size": 16, "hidden_size": 16, "num_layers": 2, "dropout": 0.0, "layer_norm": False,
          "normalize_after": False, "rescale": False, "highway_bias": 0.0, "projection_size": 0}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "plain": {"highway_bias": -2.0},
    "projected_rescaled": {"projection_size": 6, "rescale": True, "highway_bias": -1.0, "num_layers": 3},
    "wider_than_input": {"input_size": 10, "rescale": True, "highway_bias": -1.0},
    "norm_before": {"layer_norm": True},
    "norm_after": {"layer_norm": True, "normalize_after": True, "projection_size": 6},
    "projected": {"projection_size": 6, "highway_bias": -2.0},
}


def main(folder: Path) -> None:
    sru = importlib.import_module("sru")
    assert sru.__version__ == VERSION, f"sru is {sru.__version__}, wanted {VERSION}"
    for seed, name in enumerate(CASES):
        _make(sru, name, seed, folder / "sru")
        print(name)


def _make(sru: Any, name: str, seed: int, folder: Path) -> None:
    config = {**COMMON, **CASES[name]}
    generator = torch.Generator().manual_seed(2000 + seed)
    model = sru.SRU(**config).double()
    _check_initial_values(model, config)
    randomise(model, generator)
    layers, width = config["num_layers"], config["hidden_size"]
    arrays = {
        "inputs": draw((SEGMENTS, LENGTH, BATCH, config["input_size"]), generator),
        "state/before": draw((layers, BATCH, width), generator),
        "cotangents/outputs": draw((SEGMENTS, LENGTH, BATCH, width), generator),
        "cotangents/state": draw((layers, BATCH, width), generator),
    }

    def reference(x: Any, c: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of being slow with gradients on the CPU
            return model(x, c)

    results = _run(reference, arrays)
    named = dict(model.named_parameters())
    arrays |= results
    arrays |= {f"weights/{key}": value for key, value in model.state_dict().items()}
    arrays |= {f"gradients/{key}": parameter.grad.clone() for key, parameter in named.items()}
    _compare_with_compiled(model, arrays, results)  # which rounds the model and its gradients to float32
    write(folder, name, arrays, {
        "reference": f"sru {VERSION}, SRU", "config": config,
        "segments": SEGMENTS, "segment_length": LENGTH, "batch": BATCH,
    })  # fmt: skip


def _run(step: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """Segments in turn, the state carried and detached; gradients of the sum of all products with the cotangents."""
    results: dict[str, Any] = {}
    first = state = arrays["state/before"].clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    inputs = []
    for segment, values in enumerate(arrays["inputs"]):
        x = values.clone().requires_grad_()
        h, state = step(x, state if segment == 0 else state.detach())
        total = total + (h * arrays["cotangents/outputs"][segment]).sum() + (state * arrays["cotangents/state"]).sum()
        inputs.append(x)
        results |= {f"outputs/{segment}": h.detach(), f"state/{segment}": state.detach()}
    total.backward()
    results["input_gradients"] = torch.stack([x.grad for x in inputs if x.grad is not None])
    return results | {"state_gradient": first.grad}


def _compare_with_compiled(model: Any, arrays: dict[str, Any], results: dict[str, Any]) -> None:
    scripted = torch.jit.script(model.float().eval())
    state = arrays["state/before"].float()
    with torch.no_grad():
        for segment, x in enumerate(arrays["inputs"].float()):
            h, state = scripted(x, state)
            assert_close(h, results[f"outputs/{segment}"], "compiled outputs", within=2e-6)
            assert_close(state, results[f"state/{segment}"], "compiled state", within=2e-6)
    model.double()


def _check_initial_values(model: Any, config: dict[str, Any]) -> None:
    """What README.md says of a fresh model."""
    for layer in model.rnn_lst:
        forget, reset = layer.bias.chunk(2)
        assert (forget == 0).all()
        assert (reset == config["highway_bias"]).all()
        scale = (1 + 2 * torch.tensor(config["highway_bias"]).exp()) ** 0.5 if config["rescale"] else 1.0
        assert abs(layer.scale_x.item() - scale) < 1e-6
        assert layer.weight_c.abs().max() <= 1.5**0.5
        fourth = layer.weight.view(layer.weight.shape[0], -1, layer.num_matrices)
        assert fourth[..., :3].abs().max() <= (3 / layer.weight.shape[0]) ** 0.5


if __name__ == "__main__":
    main(Path(sys.argv[1]))
