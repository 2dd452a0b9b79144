"""Golden cases of SRU++, and of SRU under its newer names, as sru 3.0.0.dev6 computes them, in float64.

    pip install --no-deps --pre --target REF sru==3.0.0.dev6
    PYTHONPATH=REF python make_srupp.py OUT              # g++ and ninja on PATH: the package compiles at import

The masks are those of the reference's language-model scripts, which are not in the package: additive, −10000.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from archive import draw, randomise, write
from torch.nn.functional import cross_entropy, log_softmax

VERSION = "3.0.0.dev6"
BATCH = 2
COMMON = {"input_size": 16, "hidden_size": 16, "proj_size": 6, "num_layers": 2, "num_heads": 1, "dropout": 0.0,
          "attn_dropout": 0.0, "layer_norm": False, "normalize_after": False, "attn_layer_norm": True,
          "highway_bias": -2.0, "attention_every_n_layers": 1, "attention_last_n_layers": -1,
          "rescale": False}  # fmt: skip
# Each case: what differs; segments, their length; the memory (the segment before, given or none); the mask.
CASES: dict[str, tuple[dict[str, Any], int, int, str, str]] = {
    "every_layer": ({}, 2, 6, "segment", "causal"),
    "every_second_two_heads": (
        {"num_layers": 4, "num_heads": 2, "attention_every_n_layers": 2}, 2, 5, "segment", "causal",
    ),
    "last_layer_banded": ({"attention_last_n_layers": 1}, 3, 4, "segment", "banded"),
    "norm_after_wider_than_input": (
        {"input_size": 10, "layer_norm": True, "normalize_after": True}, 2, 5, "segment", "causal",
    ),
    "norm_before_rescaled": (
        {"layer_norm": True, "attn_layer_norm": False, "rescale": True, "attention_every_n_layers": 2},
        2, 5, "segment", "causal",
    ),
    "unmasked": ({"num_heads": 2}, 1, 7, "none", "none"),
    "source_as_memory": ({}, 2, 5, "given", "causal"),
}  # fmt: skip
VOCABULARY = 40


def main(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of the missing CUDA toolkit
        sru = importlib.import_module("sru")
        version = importlib.import_module("sru.version").__version__
    assert version == VERSION, f"sru is {version}, wanted {VERSION}"
    _check_initial_values(sru)
    for seed, name in enumerate(CASES):
        _make(sru, name, seed, folder / "srupp")
        print(name)
    _make_language_model(sru, folder / "srupp")
    _make_sru(sru, folder / "sru", "newer_names_projected", 3200, {"input_size": 10, "rescale": True})
    _make_sru(sru, folder / "sru", "newer_names", 3201, {"projection_size": 0})
    _make_sru(sru, folder / "sru", "newer_names_two_maps", 3202, {})


def _make(sru: Any, name: str, seed: int, folder: Path) -> None:
    changes, segments, length, memory_from, mask_kind = CASES[name]
    config = {**COMMON, **changes}
    generator = torch.Generator().manual_seed(3000 + seed)
    model = sru.SRUpp(**config).double()
    randomise(model, generator)
    layers, width = config["num_layers"], config["hidden_size"]
    arrays = {
        "inputs": draw((segments, length, BATCH, config["input_size"]), generator),
        "state/before": draw((layers, BATCH, width), generator),
        "cotangents/outputs": draw((segments, length, BATCH, width), generator),
        "cotangents/state": draw((layers, BATCH, width), generator),
    }
    if memory_from == "given":
        arrays["memory"] = draw((4, BATCH, width), generator)

    def reference(x: Any, c: Any, memory: Any, mask: Any) -> Any:
        h, c, bank = _quietly(model, x, c, memory=memory, attn_mask=mask)
        return h, c, bank["saved_inputs"]

    results = _run(reference, arrays, config, memory_from, mask_kind)
    _check_gradients(model)
    arrays |= results | _weights_and_gradients(model)
    write(folder, name, arrays, {
        "reference": f"sru {VERSION}, SRUpp", "config": config, "segments": segments, "segment_length": length,
        "batch": BATCH, "memory_from": memory_from, "mask": mask_kind,
    })  # fmt: skip


def _run(step: Any, arrays: dict[str, Any], config: dict[str, Any], memory_from: str, mask_kind: str) -> dict[str, Any]:
    """Segments in turn, state and memory carried and detached; gradients of the products with the cotangents."""
    results: dict[str, Any] = {}
    given = arrays["memory"].clone().requires_grad_() if memory_from == "given" else None
    memory = None if given is None else [given] * config["num_layers"]
    first = state = arrays["state/before"].clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    inputs = []
    for segment, values in enumerate(arrays["inputs"]):
        x = values.clone().requires_grad_()
        length, before = len(x), 0 if memory is None else len(memory[0])
        mask = None
        if mask_kind != "none":
            mask = _reference_mask(length, before, length, mask_kind == "banded")
            results[f"mask/{segment}"] = mask
        h, state, saved = step(x, state if segment == 0 else state.detach(), memory, mask)
        total = total + (h * arrays["cotangents/outputs"][segment]).sum() + (state * arrays["cotangents/state"]).sum()
        inputs.append(x)
        results |= {f"outputs/{segment}": h.detach(), f"state/{segment}": state.detach()}
        if memory_from == "segment":
            memory = [part.detach() for part in saved]
            results |= {f"memory/{segment}/{layer}": part for layer, part in enumerate(memory)}
    total.backward()
    results["input_gradients"] = torch.stack([x.grad for x in inputs if x.grad is not None])
    if given is not None:
        results["memory_gradient"] = given.grad
    return results | {"state_gradient": first.grad}


def _reference_mask(length: int, memory: int, unroll: int, banded: bool) -> Any:
    """Cut from a square of twice the unroll size: masked above the diagonal and, if banded, `unroll` below it."""
    ones = torch.ones(2 * unroll, 2 * unroll, dtype=torch.float64)
    table = ones.triu(diagonal=1)
    if banded:
        table = table + ones.tril(diagonal=-1 - unroll)
    return (table * -10000.0)[memory : memory + length, : memory + length]


def _make_language_model(sru: Any, folder: Path) -> None:
    """Embedding (neither scaled nor tied), SRU++, output layer with bias, as in the reference's enwik8 script."""
    config = {**COMMON, "attention_every_n_layers": 2}
    generator = torch.Generator().manual_seed(3100)
    model = torch.nn.ModuleDict({
        "embedding_layer": torch.nn.Embedding(VOCABULARY, 16), "rnn": sru.SRUpp(**config),
        "output_layer": torch.nn.Linear(16, VOCABULARY),
    }).double()  # fmt: skip
    randomise(model, generator)
    stream = torch.randint(VOCABULARY, (2 * 6 + 1, BATCH), generator=generator)
    tokens, targets = stream[:-1].view(2, 6, BATCH), stream[1:].view(2, 6, BATCH)
    arrays: dict[str, Any] = {"tokens": tokens, "targets": targets}
    state = torch.zeros(2, BATCH, 16, dtype=torch.float64)
    memory: list[Any] | None = None
    losses = []
    for segment, (x, y) in enumerate(zip(tokens, targets, strict=True)):
        mask = _reference_mask(6, 6 * segment, 6, banded=False)
        h, state, bank = _quietly(model["rnn"], model["embedding_layer"](x), state, memory=memory, attn_mask=mask)
        state, memory = state.detach(), [part.detach() for part in bank["saved_inputs"]]
        logits = model["output_layer"](h)
        losses.append(cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none"))
        arrays |= {f"logits/{segment}": logits.detach(), f"state/{segment}": state}
        arrays[f"log_probs/{segment}"] = log_softmax(logits, dim=-1).detach()
        arrays |= {f"memory/{segment}/{layer}": part for layer, part in enumerate(memory)}
    loss = torch.cat(losses).mean()
    loss.backward()
    _check_gradients(model)
    write(folder, "language_model", arrays | _weights_and_gradients(model) | {"loss": loss.detach()}, {
        "reference": f"sru {VERSION}, SRUpp between torch's Embedding and Linear",
        "config": {**config, "vocab_size": VOCABULARY}, "segments": 2, "segment_length": 6, "batch": BATCH,
        "memory_from": "segment", "mask": "causal",
    })  # fmt: skip
    print("language_model")


def _make_sru(sru: Any, folder: Path, name: str, seed: int, changes: dict[str, Any]) -> None:
    config = {"input_size": 16, "hidden_size": 16, "num_layers": 2, "projection_size": 5, "highway_bias": -1.0,
              "layer_norm": False, "normalize_after": False, "rescale": False, "dropout": 0.0} | changes  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    model = sru.SRU(**config).double()
    randomise(model, generator)
    arrays = {
        "inputs": draw((2, 5, BATCH, config["input_size"]), generator), "state/before": draw((2, BATCH, 16), generator),
        "cotangents/outputs": draw((2, 5, BATCH, 16), generator), "cotangents/state": draw((2, BATCH, 16), generator),
    }  # fmt: skip

    results = _run(lambda x, c, *_: (*_quietly(model, x, c), []), arrays, config, "none", "none")
    _check_gradients(model)
    write(folder, name, arrays | results | _weights_and_gradients(model), {
        "reference": f"sru {VERSION}, SRU", "config": config, "segments": 2, "segment_length": 5, "batch": BATCH,
    })  # fmt: skip
    print(name)


def _quietly(module: Any, *args: Any, **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of being slow with gradients on the CPU
        return module(*args, **kwargs)


def _check_gradients(model: Any) -> None:
    for key, parameter in model.named_parameters():
        assert parameter.grad.abs().max() > 1e-6, f"{key} does not matter"


def _weights_and_gradients(model: Any) -> dict[str, Any]:
    weights = {f"weights/{key}": value for key, value in model.state_dict().items()}
    return weights | {f"gradients/{key}": parameter.grad for key, parameter in model.named_parameters()}


def _check_initial_values(sru: Any) -> None:
    """What README.md says of a fresh model."""
    torch.manual_seed(0)
    size, inner, keep = 48, 12, 0.75
    fresh = sru.SRUpp(size, size, inner, num_layers=2, attention_every_n_layers=2, dropout=1 - keep)
    for layer, last in ((fresh[0], "linear2"), (fresh[1], "linear3")):
        module = layer.transform_module
        bounds = {"linear1": (6 / (size + inner)) ** 0.5, last: (6 / (inner + 3 * size)) ** 0.5 * keep**0.5}
        if last == "linear3":
            bounds["linear2"] = (6 / (inner + 2 * inner)) ** 0.5
            assert module.alpha.tolist() == [0.0]
        for name, bound in bounds.items():
            assert 0.95 * bound < getattr(module, name).weight.abs().max() <= bound, name
        assert layer.bias.tolist() == [0.0] * size + [-2.0] * size
        assert 0.9 < layer.weight_c.abs().max() <= 1
        assert layer.scale_x.item() == 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
