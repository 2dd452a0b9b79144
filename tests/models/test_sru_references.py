"""SRU and SRU++ compute what the `sru` package computes: outputs, carried state, memory and gradients, in float64.

The package's answers are the files in tests/golden/references, with the scripts that made them. A file's real-valued
inputs are here the rows of an embedding table, each token its own: so the models are run through their front door.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from built_graphs import build
from loaders import from_sru
from tiny_models import onnx_session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.model_files.state import GraphOptions
from edgefront.core.nn.context import Cache, Context
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load

REFERENCES = Path(__file__).parents[1] / "golden" / "references"
CARRIED = [
    *("sru/plain", "sru/projected", "sru/newer_names", "sru/newer_names_two_maps"),
    *("srupp/every_layer", "srupp/every_second_two_heads", "srupp/last_layer_banded"),
]
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


class Golden:
    """One file: its arrays in float64, sequences first where they are time first in the file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arrays = np.load(REFERENCES / f"{name}.npz")
        self.about = json.loads((REFERENCES / f"{name}.json").read_text())
        self.config = self.about["config"]

    def __getitem__(self, key: str) -> torch.Tensor:
        array = torch.from_numpy(self.arrays[key])
        return array.double() if array.is_floating_point() else array

    def under(self, prefix: str) -> dict[str, torch.Tensor]:
        return {key.removeprefix(prefix): self[key] for key in self.arrays.files if key.startswith(prefix)}

    def blocks(self, attends: str = "self") -> list[dict[str, Any]]:
        config = self.config
        if "proj_size" not in config:
            return [{"kind": "sru", "d_proj": config["projection_size"] or None}] * config["num_layers"]
        plain = {"kind": "srupp", "d_attn": config["proj_size"]}
        with_attention = {**plain, "n_head": config["num_heads"], "attends": attends}
        last, every = config["attention_last_n_layers"], config["attention_every_n_layers"]
        return [
            with_attention if (layer >= config["num_layers"] - last if last > 0 else (layer + 1) % every == 0)
            else {**plain, "attends": "none"}
            for layer in range(config["num_layers"])
        ]  # fmt: skip

    def architecture(self, **changes: Any) -> Architecture:
        """A model of hidden states whose vocabulary are the inputs of the file."""
        inputs = self["inputs"]
        return Architecture.parse(
            {
                "d_model": self.config["hidden_size"],
                "positions": {"kind": "none"},
                "norm": "post",
                "embedding": {"vocab_size": inputs[..., 0].numel(), "d_embed": inputs.shape[-1]},
                "blocks": self.blocks(),
                "output": {"kind": "none"},
            }
            | changes
        )

    def renamed(self, state: dict[str, torch.Tensor], architecture: Architecture) -> dict[str, torch.Tensor]:
        return from_sru(state, architecture)

    def weights(self, architecture: Architecture) -> dict[str, torch.Tensor]:
        renamed = self.renamed(self.under("weights/"), architecture)
        return {"embedding.tables.0": self["inputs"].flatten(0, 2), **renamed}

    def segments(self) -> torch.Tensor:
        """The tokens that read the inputs, int64 [segments, batch, sequence]."""
        shape = self["inputs"].shape[:3]
        return torch.arange(shape.numel()).view(shape).transpose(1, 2)

    @property
    def window(self) -> int | None:
        return self.about["segment_length"] + 1 if self.about.get("mask") == "banded" else None


def set_cells(state: Cache, cells: torch.Tensor) -> None:
    for layer, cell in enumerate(cells):
        state[f"blocks.{layer}.cell"] = cell


def cells_of(state: Cache) -> torch.Tensor:
    return torch.stack([state[name] for name in state if name.endswith(".cell")])


def check_gradients(golden: Golden, model: LanguageModel) -> None:
    gradients = {name: value.grad for name, value in model.named_parameters()}
    expected = golden.renamed(golden.under("gradients/"), model.architecture)
    for name, value in expected.items():
        torch.testing.assert_close(gradients[name], value, **CLOSE, msg=lambda text, name=name: f"{name}: {text}")
    if "input_gradients" in golden.arrays:
        table = gradients["embedding.tables.0"].view_as(golden["input_gradients"])
        torch.testing.assert_close(table, golden["input_gradients"], **CLOSE)


@pytest.mark.parametrize("name", CARRIED)
def test_segments_with_carried_state_and_memory_and_their_gradients(name: str) -> None:
    golden = Golden(name)
    model = load(LanguageModel(golden.architecture()), golden.weights(golden.architecture()))
    first = golden["state/before"].requires_grad_()
    state = model.init_cache(golden.about["batch"], cache_type="memory")
    set_cells(state, first)
    loss = torch.zeros((), dtype=torch.float64)
    for segment, tokens in enumerate(golden.segments()):
        hidden, state = model(tokens, "none", cache=state, window=golden.window)
        torch.testing.assert_close(hidden.transpose(0, 1), golden[f"outputs/{segment}"], **CLOSE)
        torch.testing.assert_close(cells_of(state), golden[f"state/{segment}"], **CLOSE)
        loss = loss + (hidden.transpose(0, 1) * golden["cotangents/outputs"][segment]).sum()
        loss = loss + (cells_of(state) * golden["cotangents/state"]).sum()
        state = state.keep(tokens.shape[1]).detach()
        for layer in range(len(model.architecture.blocks)):
            if f"blocks.{layer}.memory" in state:
                memory = state[f"blocks.{layer}.memory"].transpose(0, 1)
                torch.testing.assert_close(memory, golden[f"memory/{segment}/{layer}"], **CLOSE)
    loss.backward()
    check_gradients(golden, model)

    torch.testing.assert_close(first.grad, golden["state_gradient"], **CLOSE)


@pytest.mark.parametrize("name", CARRIED)
def test_the_same_segments_in_onnx(name: str) -> None:
    golden = Golden(name)
    architecture = golden.architecture()
    weights = {name: value.numpy() for name, value in golden.weights(architecture).items()}
    session = onnx_session(
        build(
            architecture,
            GraphOptions(mode="segment", logits="none", dtype="float64", window=golden.window),
            weights=weights,
        )
    )
    state = Cache.empty(architecture, "memory", golden.about["batch"], torch.zeros((), dtype=torch.float64))
    set_cells(state, golden["state/before"])
    feeds = {name: value.numpy() for name, value in state.items()}
    for segment, tokens in enumerate(golden.segments()):
        tensors = outputs(session, {"tokens": tokens.numpy(), **feeds})
        np.testing.assert_allclose(tensors["hidden"].swapaxes(0, 1), golden[f"outputs/{segment}"], **CLOSE)
        feeds = {name: tensors[f"next.{name}"] for name in feeds}
        cells = [value for name, value in feeds.items() if name.endswith(".cell")]
        np.testing.assert_allclose(np.stack(cells), golden[f"state/{segment}"], **CLOSE)
        for name, value in feeds.items():
            if name.endswith(".memory"):
                feeds[name] = value[:, -tokens.shape[1] :]


def outputs(session: ort.InferenceSession, feeds: dict[str, Any]) -> dict[str, Any]:
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def test_given_states_before_every_segment_are_a_source() -> None:
    golden = Golden("srupp/source_as_memory")
    rows = golden["memory"]
    source = {
        "d_model": 16,
        "positions": {"kind": "none"},
        "norm": "post",
        "embedding": {"vocab_size": rows[..., 0].numel()},
        "blocks": [{"kind": "identity"}],
        "output": {"kind": "none"},
    }
    architecture = golden.architecture(blocks=golden.blocks("both"), source=source)
    weights = golden.weights(architecture) | {"source.embedding.tables.0": rows.flatten(0, 1)}
    model = load(LanguageModel(architecture), weights)
    source_tokens = torch.arange(rows[..., 0].numel()).view(rows.shape[:2]).T
    first = cells = golden["state/before"].requires_grad_()
    loss = torch.zeros((), dtype=torch.float64)
    for segment, tokens in enumerate(golden.segments()):
        state = model.init_cache(2, cache_type="memory")
        set_cells(state, cells)
        hidden, state = model(tokens, "none", cache=state, source=source_tokens)
        torch.testing.assert_close(hidden.transpose(0, 1), golden[f"outputs/{segment}"], **CLOSE)
        loss = loss + (hidden.transpose(0, 1) * golden["cotangents/outputs"][segment]).sum()
        loss = loss + (cells_of(state) * golden["cotangents/state"]).sum()
        cells = cells_of(state).detach()
    loss.backward()
    check_gradients(golden, model)
    torch.testing.assert_close(first.grad, golden["state_gradient"], **CLOSE)
    gradient = dict(model.named_parameters())["source.embedding.tables.0"].grad
    torch.testing.assert_close(gradient.view_as(rows), golden["memory_gradient"], **CLOSE)


def test_without_a_mask_every_query_sees_everything() -> None:
    golden = Golden("srupp/unmasked")
    architecture = golden.architecture(causal=False)
    model = load(LanguageModel(architecture), golden.weights(architecture))
    first = golden["state/before"].requires_grad_()
    state = Cache.empty(architecture, "memory", 2, first)
    set_cells(state, first)
    context = Context(architecture, 7, cache=state)
    hidden = model.embedding(golden.segments()[0])
    for layer, block in enumerate(model.blocks):
        hidden = block(hidden, f"blocks.{layer}", context)
    torch.testing.assert_close(hidden.transpose(0, 1), golden["outputs/0"], **CLOSE)
    torch.testing.assert_close(cells_of(context.next_cache), golden["state/0"], **CLOSE)
    loss = (hidden.transpose(0, 1) * golden["cotangents/outputs"][0]).sum()
    (loss + (cells_of(context.next_cache) * golden["cotangents/state"]).sum()).backward()
    check_gradients(golden, model)
    torch.testing.assert_close(first.grad, golden["state_gradient"], **CLOSE)


def test_a_whole_language_model_its_loss_and_gradients() -> None:
    golden = Golden("srupp/language_model")
    architecture = Architecture.parse(
        {
            "d_model": 16,
            "positions": {"kind": "none"},
            "norm": "post",
            "embedding": {"vocab_size": golden.config["vocab_size"]},
            "blocks": golden.blocks(),
            "output": {"tied": False, "bias": True},
        }
    )
    model = load(LanguageModel(architecture), from_sru(golden.under("weights/"), architecture))
    state = model.init_cache(2, cache_type="memory")
    losses = []
    for segment, (tokens, targets) in enumerate(zip(golden["tokens"], golden["targets"], strict=True)):
        logits, state = model(tokens.T, cache=state)
        torch.testing.assert_close(logits.transpose(0, 1), golden[f"logits/{segment}"], **CLOSE)
        losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.T.flatten(), reduction="none"))
        state = state.keep(6).detach()
    loss = torch.cat(losses).mean()
    torch.testing.assert_close(loss, golden["loss"], **CLOSE)
    loss.backward()
    check_gradients(golden, model)
