"""What a training can use: recipes and data sets."""

from __future__ import annotations

from typing import Any

from edgefront.core.wire.jobs import TrainerPace
from edgefront.core.wire.messages import View


class RecipeView(View):
    name: str
    title: str
    source: str
    """Paper, table or script that it was taken from."""
    task: str
    """streams, sentences, masked or pairs: what its batches are, and so which models it trains."""
    dataset: str | None
    """The one that is taken where none is named."""
    steps: int
    tokens: int
    """Of the whole training, by its rows and segments."""
    recipe: dict[str, Any]
    """All of it."""


class DatasetView(View):
    name: str
    title: str
    digest: str | None
    """Names it where several have the name; None before a built-in one is prepared, on its first use."""
    level: str
    vocab_size: int | None
    parallel: bool
    """Text in two languages, for recipes whose task is pairs."""


class TrainerView(View):
    """A worker that has trained a model to its end: how fast it trains is known."""

    name: str
    gpus: int
    """That its latest training used; 0: its CPU."""
    pace: TrainerPace
