"""SRU++ on IWSLT'14 from German to English."""

from __future__ import annotations

from collections.abc import Iterator

from edgefront.core.nn.dropout import Dropout
from edgefront.core.recipes.recipe import Evaluation, Optimizer, Recipe, Schedule


def recipes() -> Iterator[Recipe]:
    """One. The paper takes the settings of imitkd's teacher but for optimiser, decay and 50 epochs of 64,000 steps.

    That code's learning rate is 0.1·min(step^-0.5, step·10000^-1.5): 1e-3 at the end of the warm-up.
    """
    yield Recipe(
        name="iwslt",
        title="SRU++ on IWSLT'14 German to English",
        source="SRU++ (arXiv 2102.12459) Appendix B; otherwise asappresearch/imitkd, configs/iwslt/teacher.yaml",
        architecture="srupp-iwslt",
        dataset="iwslt14",
        task="pairs",
        steps=64_000,
        rows=128,
        segment=125,
        optimizer=Optimizer(name="radam", lr=1e-3, eps=1e-8, weight_decay=0.1, decays="all"),
        schedule=Schedule(decay="inverse_sqrt", warmup=10_000),
        clip=5.0,
        dropout=Dropout(embedding=0.1, hidden=0.1, attention=0.1, highway=0.1, output=0.1),
        initialisation="translation",
        checkpoint_every=1_000,
        evaluation=Evaluation(segment=125, rows=128, every=1_000),
    )
