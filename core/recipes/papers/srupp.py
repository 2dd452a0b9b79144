"""SRU++ on enwik8, WikiText-103 and Billion Word: the paper's tables, and its code for what they do not contain.

One rate of dropout serves everywhere. On words it is also that of the embedding's narrow vectors; on Billion Word
neither these nor attention's probabilities have any. Evaluation reads as much memory as it predicts, every token
seeing as many keys, and is given here at the lengths of the test.
"""

from __future__ import annotations

from collections.abc import Iterator

from edgefront.core.nn.dropout import Dropout
from edgefront.core.recipes.recipe import Evaluation, Optimizer, Recipe, Schedule

_PAPER = "SRU++ (arXiv 2102.12459) {}; otherwise asappresearch/sru, experiments/srupp_experiments"


def recipes() -> Iterator[Recipe]:
    """The columns of the tables that differ in more than the model."""
    small, base, large = "§5, Table 1 and Appendix B", "Table 11", "Table 11"
    yield _recipe("enwik8-small", "srupp-small", small, 24, 512, 2_048, 0.1, lr=2.5e-4, warmup=0, precision="float32")
    yield _recipe("enwik8-base", "srupp-base", base, 32, 1_024, 3_072, 0.22)
    yield _recipe("enwik8-large", "srupp-large", large, 64, 1_024, 3_072, 0.32, lr=4e-4)
    yield _recipe("enwik8-large-ratio8", "srupp-large-ratio8", large, 64, 1_024, 3_072, 0.35, lr=4e-4)
    yield _recipe("wt103-base", "srupp-base-wt103", "Table 12", 64, 768, 2_560, 0.15)
    yield _recipe("wt103-large", "srupp-large-wt103", "Table 12", 64, 1_024, 2_560, 0.2)
    words = "§5, Billion Word, and Table 6"
    yield _recipe("lm1b-base", "srupp-base-lm1b", words, 1_024, 64, 96, 0.05, lr=2e-4, steps=800_000)
    yield _recipe("lm1b-large", "srupp-large-lm1b", words, 1_536, 64, 96, 0.1, lr=2e-4, steps=800_000)


def _recipe(
    name: str,
    architecture: str,
    source: str,
    rows: int,
    segment: int,
    tested_at: int,
    rate: float,
    *,
    lr: float = 3e-4,
    warmup: int = 16_000,
    steps: int = 400_000,
    precision: str = "float16",
) -> Recipe:
    corpus = name.partition("-")[0]
    dropout = Dropout(
        embedding=rate,
        narrow=rate if corpus == "wt103" else 0.0,
        hidden=rate,
        attention=0.0 if corpus == "lm1b" else rate,
        highway=rate,
        output=rate,
    )
    title, dataset = _CORPORA[corpus]
    return Recipe.parse(
        {
            "name": f"srupp-{name}",
            "title": f"SRU++ on {title}: {architecture}",
            "source": _PAPER.format(source),
            "architecture": architecture,
            "dataset": dataset,
            "task": "sentences" if corpus == "lm1b" else "streams",
            "steps": steps,
            "rows": rows,
            "segment": segment,
            "memory": segment,
            "epoch_resets": corpus != "lm1b",
            "optimizer": Optimizer(name="radam", lr=lr, eps=1e-8, weight_decay=0.1, decays="all"),
            "schedule": Schedule(decay="cosine_whole", warmup=warmup),
            "clip": 1.0,
            "dropout": dropout,
            "initialisation": "srupp",
            "precision": precision,
            "checkpoint_every": 8_000,
            "evaluation": Evaluation(segment=tested_at, memory=tested_at, same_length=True, rows=16, every=8_000),
        }
    )


_CORPORA = {
    "enwik8": ("enwik8", "enwik8"),
    "wt103": ("WikiText-103", "wikitext-103"),
    "lm1b": ("Billion Word", "lm1b"),
}
