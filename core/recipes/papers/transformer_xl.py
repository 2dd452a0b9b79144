"""Transformer-XL and PAR on WikiText-103, by the settings of NVIDIA's Transformer-XL that PAR reports (Table A1)."""

from __future__ import annotations

from collections.abc import Iterator

from edgefront.core.nn.dropout import Dropout
from edgefront.core.recipes.recipe import Evaluation, Optimizer, Recipe, Schedule

_NVIDIA = "NVIDIA DeepLearningExamples, Transformer-XL, {}.yaml"
_PAR = "PAR (arXiv 2009.04534) {}; otherwise " + _NVIDIA

BASE = Recipe(
    name="transformer-xl-base",
    title="Transformer-XL Base on WikiText-103",
    source=_PAR.format("Table A1", "wt103_base"),
    architecture="transformer-xl-base",
    dataset="wikitext-103",
    task="streams",
    steps=40_000,
    rows=256,
    segment=192,
    memory=192,
    optimizer=Optimizer(name="lamb", lr=1e-2, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0),
    schedule=Schedule(decay="cosine", warmup=1_000, min_lr=1e-3),
    clip=0.25,
    dropout=Dropout(embedding=0.1, hidden=0.1, attention=0.0, output=0.1),
    initialisation="transformer_xl",
    precision="float16",
    checkpoint_every=5_000,
    evaluation=Evaluation(segment=64, memory=640, clamp=400, same_length=True, rows=16, every=5_000),
)
_LARGE = BASE.model_copy(
    update={
        "name": "transformer-xl-large",
        "title": "Transformer-XL Large on WikiText-103",
        "source": _PAR.format("§3.1", "wt103_large"),
        "architecture": "transformer-xl-large",
        "steps": 100_000,
        "rows": 128,
        "segment": 384,
        "memory": 384,
        "schedule": Schedule(decay="cosine", warmup=16_000, min_lr=1e-4),
        "dropout": Dropout(embedding=0.2, hidden=0.2, attention=0.2, output=0.2),
        "initialisation": "transformer_xl_large",
        "evaluation": Evaluation(segment=128, memory=1_600, clamp=1_000, same_length=True, rows=16, every=5_000),
    }
)


def recipes() -> Iterator[Recipe]:
    """PAR trains its models as it does Transformer-XL's; only the blocks differ."""
    yield BASE
    yield _as(BASE, "par-base", "PAR Transformer Base on WikiText-103")
    yield _LARGE
    yield _as(_LARGE, "par-large", "PAR Transformer Large on WikiText-103")


def _as(other: Recipe, name: str, title: str) -> Recipe:
    return other.model_copy(update={"name": name, "title": title, "architecture": name})
