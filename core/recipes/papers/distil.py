"""A recipe that is ours, published nowhere: heals a model that was cut out of a trained one, its teacher."""

from __future__ import annotations

from collections.abc import Iterator

from edgefront.core.recipes.recipe import Distil, Evaluation, Optimizer, Recipe, Schedule


def recipes() -> Iterator[Recipe]:
    """One, of few tokens: its weights are trained already.

    One learning rate for all parameters, and no scheme by shape: CompleteP's rates are right for the initial values
    that belong to them, and the weights that stay were trained otherwise, at scales that do not follow from
    the shape. The rate and the short warm-up are Minitron's (Sreenivas et al. 2024, arXiv 2408.11796).
    """
    yield Recipe(
        name="distil",
        title="Heals a model that was cut out of a trained one, by its scores: 300 steps of 1,024 tokens",
        source="edgefront's own, by Minitron (arXiv 2408.11796) and Hinton et al. (arXiv 1503.02531)",
        dataset="python",
        order="shuffled",
        steps=300,
        rows=8,
        segment=128,
        optimizer=Optimizer(name="adamw", lr=1e-4, betas=(0.9, 0.95)),
        schedule=Schedule(decay="cosine", warmup=10),
        clip=1.0,
        distil=Distil(),
        checkpoint_every=100,
        evaluation=Evaluation(segment=128, rows=16, every=100, tokens=1 << 15),
    )
