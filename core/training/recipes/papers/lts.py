"""The trainings of Lightweight Transformer Search: Table 2, one recipe a row.

The table gives optimiser, steps, batch, learning rate, schedule, warm-up and dropout; Appendix B the lengths, 192 and
32 tokens, and metaseq for the Pile. What neither gives is taken from the code that they name: NVIDIA's Transformer-XL,
with which WikiText-103 has its lowest learning rate and the gradients their clip, and OPT for the Pile: a tenth of the
highest rate at the end, initialisation with 0.006. GPT-2's rows have 50,264 pieces, whatever is usual for the data.
"""

from __future__ import annotations

from collections.abc import Iterator

from edgefront.core.nn.dropout import NO_DROPOUT, Dropout
from edgefront.core.training.recipes.recipe import Evaluation, Optimizer, Recipe, Schedule

_SOURCE = "LTS (arXiv 2203.02094) Table 2, {}; otherwise {}"
_NVIDIA = "NVIDIA's Transformer-XL"

# What GPT-2 drops: embedding and updates, and nothing inside its feed-forward blocks.
_GPT2_DROPOUT = Dropout(embedding=0.1, hidden=0.1, inner=0.0, attention=0.1)

_GPT2_WT103 = Recipe(
    name="lts-wt103",
    title="GPT-2 of LTS on WikiText-103 by BPE",
    source=_SOURCE.format("GPT-2, WT103", _NVIDIA),
    architecture="lts-gpt2-baseline",
    dataset="wikitext-103",
    level="bpe",
    task="streams",
    steps=40_000,
    rows=256,
    segment=192,
    optimizer=Optimizer(name="lamb", lr=1e-2, betas=(0.9, 0.999), eps=1e-6),
    schedule=Schedule(decay="cosine", warmup=1_000, min_lr=1e-3),
    clip=0.25,
    dropout=_GPT2_DROPOUT,
    initialisation="gpt2",
    checkpoint_every=5_000,
    evaluation=Evaluation(segment=192, rows=16, every=5_000),
)
_GPT2_LM1B = _GPT2_WT103.model_copy(
    update={
        "name": "lts-lm1b",
        "title": "GPT-2 of LTS on Billion Word by BPE",
        "source": _SOURCE.format("GPT-2, LM1B", _NVIDIA),
        "dataset": "lm1b",
        "task": "sentences",
        "steps": 100_000,
        "rows": 224,
        "segment": 32,
        "optimizer": Optimizer(name="lamb", lr=2.5e-4, betas=(0.9, 0.999), eps=1e-6),
        "schedule": Schedule(decay="cosine", warmup=20_000),
        "evaluation": Evaluation(segment=32, rows=16, every=5_000),
    }
)
_PILE = Recipe(
    name="lts-pile",
    title="OPT-350M of LTS on 28 billion tokens of the Pile",
    source=_SOURCE.format("GPT-2, Pile", "OPT (arXiv 2205.01068) §2.2"),
    architecture="lts-opt-baseline",
    dataset="pile",
    level="bpe",
    task="streams",
    steps=54_800,
    rows=256,
    segment=2_048,
    optimizer=Optimizer(name="adamw", lr=3e-5, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
    schedule=Schedule(decay="power", power=1.0, warmup=715, min_lr=3e-6),
    clip=1.0,
    dropout=Dropout(embedding=0.0, hidden=0.1, inner=0.0, attention=0.0),
    initialisation="opt",
    precision="float16",
    checkpoint_every=1_000,
    evaluation=Evaluation(segment=2_048, rows=8, every=1_000, tokens=1 << 21),
)
_XL_WT103 = _GPT2_WT103.model_copy(
    update={
        "name": "lts-transformer-xl-wt103",
        "title": "Transformer-XL of LTS on WikiText-103",
        "source": _SOURCE.format("Transformer-XL, WT103", _NVIDIA),
        "architecture": "lts-transformer-xl-baseline",
        "level": "words",
        "memory": 192,
        "dropout": Dropout(embedding=0.1, hidden=0.1, attention=0.0, output=0.1),
        "initialisation": "transformer_xl",
        "evaluation": Evaluation(segment=192, memory=192, same_length=True, rows=16, every=5_000),
    }
)
_XL_LM1B = _XL_WT103.model_copy(
    update={
        "name": "lts-transformer-xl-lm1b",
        "title": "Transformer-XL of LTS on Billion Word",
        "source": _SOURCE.format("Transformer-XL, LM1B", _NVIDIA),
        "dataset": "lm1b",
        "task": "sentences",
        "steps": 100_000,
        "rows": 224,
        "segment": 32,
        "memory": 32,
        "optimizer": Optimizer(name="adam", lr=2.5e-4, betas=(0.9, 0.999), eps=1e-8),
        "schedule": Schedule(decay="cosine", warmup=20_000),
        "dropout": NO_DROPOUT,
        "evaluation": Evaluation(segment=32, memory=32, same_length=True, rows=16, every=5_000),
    }
)


def recipes() -> Iterator[Recipe]:
    """The rows of GPT-2 under the plain names, then those of Transformer-XL."""
    yield _GPT2_WT103
    yield _GPT2_LM1B
    yield _PILE
    yield _XL_WT103
    yield _XL_LM1B
