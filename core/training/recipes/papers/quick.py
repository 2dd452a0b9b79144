"""Recipes that are ours, published nowhere: for decoders without memory, for other language models, and for healing."""

from __future__ import annotations

from collections.abc import Iterator

from edgefront.core.training.recipes.recipe import Distil, Evaluation, Optimizer, Parametrisation, Recipe, Schedule


def recipes() -> Iterator[Recipe]:
    """Three of one length: with 1.3 million parameters less than a minute on two cores, with 5 million two."""
    yield Recipe(
        name="modern",
        title="Decoders without memory, one learning rate for all shapes: 300 steps of 1,024 tokens",
        source="edgefront's own, by CompleteP (arXiv 2505.01618) and µP (arXiv 2203.03466)",
        dataset="python",
        order="shuffled",
        steps=300,
        rows=8,
        segment=128,
        optimizer=Optimizer(name="adamw", lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1),
        schedule=Schedule(decay="cosine", warmup=30),
        clip=1.0,
        initialisation="completep",
        parametrisation=Parametrisation(base_width=64, base_blocks=4, embedding_lr=2.0),
        checkpoint_every=100,
        evaluation=Evaluation(segment=128, rows=16, every=100, tokens=1 << 15),
    )
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
    # Its weights are trained already, at scales that do not follow from the shape, so CompleteP's rates are not theirs.
    # The rate and the short warm-up are Minitron's (Sreenivas et al. 2024, arXiv 2408.11796).
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
