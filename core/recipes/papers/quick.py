"""Recipes for a computer without a GPU: ours, published nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from edgefront.core.recipes.recipe import Evaluation, Optimizer, Recipe, Schedule


def recipes() -> Iterator[Recipe]:
    """One: with 1.3 million parameters less than a minute on two cores, with 5 million two."""
    yield Recipe(
        name="quick",
        title="A first look, on a laptop: 300 steps of 1,024 tokens",
        source="edgefront's own",
        dataset="python",
        steps=300,
        rows=8,
        segment=128,
        optimizer=Optimizer(name="adamw", lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1),
        schedule=Schedule(decay="cosine", warmup=30, min_lr=2e-4),
        clip=1.0,
        initialisation="gpt2",
        checkpoint_every=100,
        evaluation=Evaluation(segment=128, rows=16, every=100, tokens=1 << 15),
    )
