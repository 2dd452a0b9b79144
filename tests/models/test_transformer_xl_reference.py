"""Transformer-XL against transformers 4.35's TransfoXL and NVIDIA's, whose answers `golden/references` keeps.

Segment after segment over its memory: log-probabilities, hidden states, memory, the loss and its gradients; in ONNX
Runtime the same without gradients.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from built_graphs import build
from foreign_models import difference
from loaders import from_transformer_xl
from numpy.typing import NDArray
from tiny_models import onnx_session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.model_files.state import GraphOptions
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load

FOLDER = Path(__file__).parents[1] / "golden" / "references" / "transformer_xl"
CASES = sorted(path.stem for path in FOLDER.glob("*.json"))
Arrays = dict[str, NDArray[Any]]


class Case:
    """One golden case: its model as ours, and what the reference made of its text."""

    def __init__(self, name: str) -> None:
        self.about: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
        with np.load(FOLDER / f"{name}.npz") as file:
            self.arrays: Arrays = {key: file[key] for key in file.files}
        self.config: dict[str, Any] = self.about["config"]
        self.architecture = _architecture(self.config)
        self.memory_length: int = self.config["mem_len"]
        self.window: int | None = self.memory_length if self.config["same_length"] else None
        """Keys that a token sees under the reference's same-length mask, itself included."""

    def renamed(self, folder: str) -> dict[str, torch.Tensor]:
        """The arrays weights/… or gradients/… under our names, in float64."""
        state = {
            key.removeprefix(f"{folder}/"): torch.from_numpy(value.astype(np.float64))
            for key, value in self.arrays.items()
            if key.startswith(f"{folder}/")
        }
        state |= {alias: state[name] for alias, name in self.about["aliases"].items()}
        return from_transformer_xl(state, self.architecture, reverse_clusters=self.about.get("reverse_clusters", False))

    def segments(self) -> Iterator[tuple[int, NDArray[Any], NDArray[Any]]]:
        """(number, tokens, targets), both [batch, sequence]."""
        yield from zip(range(self.about["segments"]), self.arrays["tokens"], self.arrays["targets"], strict=True)

    def memory(self, when: int | str) -> Arrays:
        """The attention blocks' memory, [batch, past, d_model] by our names; empty if there is none."""
        stacked = self.arrays.get(f"memory/{when}", np.zeros((0,)))
        return {
            f"blocks.{2 * layer}.memory": value.astype(np.float64).transpose(1, 0, 2)
            for layer, value in enumerate(stacked)
        }


def _architecture(config: dict[str, Any]) -> Architecture:
    layer = [
        {"kind": "attention", "n_head": config["n_head"], "d_head": config["d_head"]},
        {"kind": "feed_forward", "d_inner": config["d_inner"]},
    ]
    return Architecture.parse(
        {
            "d_model": config["d_model"],
            "positions": {
                "kind": "relative",
                "shared": not config["untie_r"],
                "clamp": config["clamp_len"] if config["clamp_len"] > 0 else None,
            },
            "norm": "pre" if config["pre_lnorm"] else "post",
            "final_norm": False,
            "activation": "relu",
            "embedding": {
                "vocab_size": config["vocab_size"],
                "d_embed": config["d_embed"],
                "cutoffs": config["cutoffs"],
                "div": config["div_val"],
                "scaled": True,
            },
            "blocks": layer * config["n_layer"],
            "output": {
                "kind": "tokens",
                "bias": True,
                "tied_projections": "tails" if config["proj_share_all_but_first"] else "none",
            },
        }
    )


@pytest.mark.parametrize("name", CASES)
def test_values_and_memory_over_segments(name: str) -> None:
    case = Case(name)
    model = load(LanguageModel(case.architecture), case.renamed("weights"))
    state = model.init_cache(case.arrays["tokens"].shape[1], "memory")
    state.update({key: torch.from_numpy(value) for key, value in case.memory("before").items()})
    for number, tokens, _ in case.segments():
        with torch.inference_mode():
            hidden, _ = model(torch.from_numpy(tokens), "none", cache=state, window=case.window)
            scores, state = model(torch.from_numpy(tokens), cache=state, window=case.window)
        state = state.keep(case.memory_length)
        assert difference(hidden.numpy(), case.arrays[f"hidden/{number}"]) < 1e-9
        assert difference(scores.log_softmax(-1).numpy(), case.arrays[f"log_probs/{number}"]) < 1e-9
        for key, value in case.memory(number).items():
            assert difference(state[key].numpy(), value) < 1e-9


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients(name: str) -> None:
    case = Case(name)
    model = load(LanguageModel(case.architecture), case.renamed("weights"))
    state = model.init_cache(case.arrays["tokens"].shape[1], "memory")
    state.update({key: torch.from_numpy(value) for key, value in case.memory("before").items()})
    losses = []
    for _, tokens, targets in case.segments():
        scores, state = model(torch.from_numpy(tokens), cache=state, window=case.window)
        state = state.detach().keep(case.memory_length)
        chosen = scores.log_softmax(-1).gather(2, torch.from_numpy(targets)[..., None])
        losses.append(-chosen.mean())
    loss = torch.stack(losses).mean()
    loss.backward()
    assert abs(loss.item() - float(case.arrays["loss"])) < 1e-9
    expected = case.renamed("gradients")
    gradients = {key: value.grad for key, value in model.named_parameters()}
    assert gradients.keys() == expected.keys()
    for key, value in expected.items():
        assert difference(gradients[key].numpy(), value.numpy()) < 1e-9, key


@pytest.mark.parametrize("name", CASES)
def test_onnx_runtime_over_segments(name: str) -> None:
    case = Case(name)
    weights = {key: value.numpy() for key, value in case.renamed("weights").items()}
    model = build(case.architecture, GraphOptions(mode="segment", dtype="float64", window=case.window), weights=weights)
    session = onnx_session(model)
    batch, width = case.arrays["tokens"].shape[1], case.architecture.d_model
    blank = {f"blocks.{2 * layer}.memory": np.zeros((batch, 0, width)) for layer in range(case.config["n_layer"])}
    state = blank | case.memory("before")
    for number, tokens, _ in case.segments():
        names = [output.name for output in session.get_outputs()]
        answer = dict(zip(names, session.run(None, {"tokens": tokens, **state}), strict=True))
        scores = torch.from_numpy(answer["logits"]).log_softmax(-1).numpy()
        assert difference(scores, case.arrays[f"log_probs/{number}"]) < 1e-9
        start = max(0, answer[f"next.{next(iter(state))}"].shape[1] - case.memory_length)
        state = {key: answer[f"next.{key}"][:, start:] for key in state}
        for key, value in case.memory(number).items():
            assert difference(state[key], value) < 1e-9


def test_the_cases_cover_what_the_description_can_say() -> None:
    models = [Case(name).architecture for name in CASES]
    assert {model.norm for model in models} == {"pre", "post"}
    assert {model.embedding.div for model in models} == {1, 2}
    assert {model.positions.shared for model in models} == {True, False}
    assert {model.output.tied_projections for model in models} == {"tails", "none"}
    assert len({model.positions.clamp for model in models}) > 2
    assert {bool(model.embedding.cutoffs) for model in models} == {True, False}
