"""SRU++ on enwik8, WikiText-103, Billion Word and IWSLT'14: the paper's tables, and its code for what is not in them.

One rate of dropout serves everywhere. On words it is also that of the embedding's narrow vectors; on Billion Word
neither these nor attention's probabilities have any. Evaluation reads as much memory as it predicts, every token
seeing as many keys, and is given here at the lengths of the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from edgefront.core.nn.dropout import Dropout
from edgefront.core.training.recipes.recipe import Evaluation, Optimizer, Recipe, Schedule

_PAPER = "SRU++ (arXiv 2102.12459) {}; otherwise asappresearch/sru, experiments/srupp_experiments"


class _Column(NamedTuple):
    """A column of the tables, or of what the paper's code adds to them."""

    name: str
    architecture: str
    source: str
    rows: int
    segment: int
    tested_at: int
    """Tokens of a segment in evaluation, and of its memory."""
    rate: float
    """Rate of dropout."""
    lr: float = 3e-4
    warmup: int = 16_000
    steps: int = 400_000
    precision: str = "float16"


_SMALL, _LARGE = "§5, Table 1 and Appendix B", "Table 11"
_WORDS = "§5, Billion Word, and Table 6"
_COLUMNS = (
    _Column("enwik8-small", "srupp-small", _SMALL, 24, 512, 2_048, 0.1, lr=2.5e-4, warmup=0, precision="float32"),
    _Column("enwik8-base", "srupp-base", _LARGE, 32, 1_024, 3_072, 0.22),
    _Column("enwik8-large", "srupp-large", _LARGE, 64, 1_024, 3_072, 0.32, lr=4e-4),
    _Column("enwik8-large-ratio8", "srupp-large-ratio8", _LARGE, 64, 1_024, 3_072, 0.35, lr=4e-4),
    _Column("wt103-base", "srupp-base-wt103", "Table 12", 64, 768, 2_560, 0.15),
    _Column("wt103-large", "srupp-large-wt103", "Table 12", 64, 1_024, 2_560, 0.2),
    _Column("lm1b-base", "srupp-base-lm1b", _WORDS, 1_024, 64, 96, 0.05, lr=2e-4, steps=800_000),
    _Column("lm1b-large", "srupp-large-lm1b", _WORDS, 1_536, 64, 96, 0.1, lr=2e-4, steps=800_000),
)


def recipes() -> Iterator[Recipe]:
    """The columns of the tables that differ in more than the model, and the translation."""
    yield from map(_recipe, _COLUMNS)
    # The paper takes the settings of imitkd's teacher but for optimiser, decay and 50 epochs of 64,000 steps. That
    # code's learning rate is 0.1·min(step^-0.5, step·10000^-1.5): 1e-3 at the end of the warm-up.
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


def _recipe(column: _Column) -> Recipe:
    corpus = column.name.partition("-")[0]
    dropout = Dropout(
        embedding=column.rate,
        narrow=column.rate if corpus == "wt103" else 0.0,
        hidden=column.rate,
        attention=0.0 if corpus == "lm1b" else column.rate,
        highway=column.rate,
        output=column.rate,
    )
    title, dataset = _CORPORA[corpus]
    return Recipe.parse(
        {
            "name": f"srupp-{column.name}",
            "title": f"SRU++ on {title}: {column.architecture}",
            "source": _PAPER.format(column.source),
            "architecture": column.architecture,
            "dataset": dataset,
            "task": "sentences" if corpus == "lm1b" else "streams",
            "steps": column.steps,
            "rows": column.rows,
            "segment": column.segment,
            "memory": column.segment,
            "epoch_resets": corpus != "lm1b",
            "optimizer": Optimizer(name="radam", lr=column.lr, eps=1e-8, weight_decay=0.1, decays="all"),
            "schedule": Schedule(decay="cosine_whole", warmup=column.warmup),
            "clip": 1.0,
            "dropout": dropout,
            "initialisation": "srupp",
            "precision": column.precision,
            "checkpoint_every": 8_000,
            "evaluation": Evaluation(
                segment=column.tested_at, memory=column.tested_at, same_length=True, rows=16, every=8_000
            ),
        }
    )


_CORPORA = {
    "enwik8": ("enwik8", "enwik8"),
    "wt103": ("WikiText-103", "wikitext-103"),
    "lm1b": ("Billion Word", "lm1b"),
}
