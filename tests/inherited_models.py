"""Small trained-like parents of each kind that can be cut, and studies of their cuts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from packages import lively
from torch import Tensor

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.parameters import parameters
from edgefront.core.common.files import sha256
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load
from edgefront.core.quality.pruning_predictor import PruningPredictor, pruning_origin
from edgefront.core.quality.pruning_table import PruningTable
from edgefront.core.training.evaluation.package import WEIGHTS, write_package
from edgefront.core.training.pruning.importance import Importance, importance_of
from edgefront.core.training.pruning.prune import EvaluationText, PruningEvaluator, prune_weights
from edgefront.core.training.pruning.study import PruningStudy, write_pruning_study

S = {"kind": "attention", "n_head": 4, "n_kv_head": 2, "bias": "none"}
F = {"kind": "feed_forward", "d_inner": 24, "gated": True, "bias": False}
ROTARY = {"positions": {"kind": "rotary"}, "norm_kind": "rms", "activation": "silu"}
PARENTS: dict[str, dict[str, Any]] = {
    "llama": {**ROTARY, "blocks": [S, F] * 3, "output": {"tied": False}},
    "qwen": {**ROTARY, "blocks": [{**S, "bias": "qkv", "qk_norm": True}, F] * 2},
    "olmo": {**ROTARY, "norm": "branch", "blocks": [{**S, "qk_norm": "whole"}, F] * 2},
    "gpt2": {
        "positions": {"kind": "learned", "length": 40},
        "blocks": [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 24}] * 2,
    },
    "lfm": {**ROTARY, "blocks": [{"kind": "short_conv"}, F, {**S, "window": 6}, F, {"kind": "short_conv"}, F]},
}


@cache
def parent(name: str) -> LanguageModel:
    """A model of width 16, with weights in which nothing is one, zero or tiny."""
    return lively({"d_model": 16, **PARENTS[name]}, spread=0.2)


def tokens(rows: int = 6, length: int = 20, seed: int = 3) -> Tensor:
    """int64 [rows, length + 1] of 256 tokens."""
    return torch.randint(0, 256, (rows, length + 1), generator=torch.Generator().manual_seed(seed))


def importance(model: LanguageModel) -> Importance:
    return importance_of(model, [tokens(seed=4)[:, :-1]], torch.device("cpu"))


def cutter(model: LanguageModel) -> PruningEvaluator:
    text = EvaluationText(tokens(), torch.device("cpu"))
    return PruningEvaluator(model, importance(model), text, text.loss(model))


@cache
def cut_table(name: str) -> PruningTable:
    return cutter(parent(name)).table()


@cache
def cut_law(name: str, combinations: int = 12) -> PruningPredictor:
    return _law(cutter(parent(name)), cut_table(name), f"cuts-{name}", name, combinations=combinations)


def _law(
    of: PruningEvaluator, table: PruningTable, name: str, parent: str, kind: str = "", combinations: int = 12
) -> PruningPredictor:
    origin = pruning_origin(name, parent, "noise", "valid", "token of 256", kind)
    return PruningPredictor(origin, table, of.parent_loss, *of.combinations(table, combinations, 0))


def weights_of(model: LanguageModel) -> dict[str, Tensor]:
    return {spec.name: model.get_parameter(spec.name).detach() for spec in parameters(model.architecture)}


def child_of(
    model: LanguageModel, child: Architecture, table: PruningTable, of: Importance | None = None
) -> LanguageModel:
    """The part of the model, with the weights that it inherits."""
    held = prune_weights(weights_of(model), child, table, of or importance(model))
    part: LanguageModel = load(LanguageModel(child), held).eval()
    return part


def write_parent(folder: Path, model: LanguageModel, **facts: Any) -> PruningPredictor:
    """Writes the model as a folder of ours, over bytes, with a study of its cuts."""
    write_package(folder, model, ByteTokenizer(), {"name": "parent", **facts})
    of = cutter(model)
    law = _law(of, of.table(), "cuts", "parent", "llama")
    write_pruning_study(PruningStudy(of.importance, law, sha256(folder / WEIGHTS)), folder)
    return law
