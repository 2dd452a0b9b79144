"""PAR, Transformer-XL and BERT, by the settings of NVIDIA's code that PAR reports (Table A1)."""

from __future__ import annotations

from collections.abc import Iterator

from edgefront.core.nn.dropout import Dropout
from edgefront.core.training.recipes.recipe import Evaluation, Optimizer, Recipe, Schedule

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


_SOURCE = "PAR (arXiv 2009.04534) §3.2; otherwise NVIDIA DeepLearningExamples, BERT, pretrain_config.sh: phase {}"

# BERT drops the embedding after its norm, updates and attention's probabilities, nothing inside a feed-forward block.
_DROPOUT = Dropout(embedding=0.1, hidden=0.1, inner=0.0, attention=0.1)

_PHASE_1 = Recipe(
    name="par-bert-phase1",
    title="PAR BERT Base, phase 1: sequences of 128",
    source=_SOURCE.format(1),
    architecture="par-bert-base-mlm",
    task="masked",
    steps=7_038,
    rows=65_536,
    segment=128,
    masked_fraction=0.15,
    optimizer=Optimizer(name="nvlamb", lr=6e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, decays="matrices"),
    schedule=Schedule(decay="power", power=0.5, warmup=2_001),  # 28.43 % of the steps, rounded up
    dropout=_DROPOUT,
    initialisation="bert",
    precision="float16",
    checkpoint_every=200,
    evaluation=Evaluation(segment=128, rows=64, every=200, tokens=1 << 20),
)
_PHASE_2 = _PHASE_1.model_copy(
    update={
        "name": "par-bert-phase2",
        "title": "PAR BERT Base, phase 2: continues phase 1 with sequences of 512",
        "source": _SOURCE.format(2),
        "steps": 1_563,
        "rows": 32_768,
        "segment": 512,
        "optimizer": _PHASE_1.optimizer.model_copy(update={"lr": 4e-3}),
        "schedule": Schedule(decay="power", power=0.5, warmup=201),  # 12.8 %, rounded up
        "evaluation": Evaluation(segment=512, rows=16, every=200, tokens=1 << 20),
    }
)


def recipes() -> Iterator[Recipe]:
    """PAR trains its models as it does Transformer-XL's, whose blocks alone differ, and BERT in two phases."""
    yield BASE
    yield _as(BASE, "par-base", "PAR Transformer Base on WikiText-103")
    yield _LARGE
    yield _as(_LARGE, "par-large", "PAR Transformer Large on WikiText-103")
    # NVLAMB itself cuts the gradient's norm to 1.
    yield _PHASE_1
    yield _PHASE_2


def _as(other: Recipe, name: str, title: str) -> Recipe:
    return other.model_copy(update={"name": name, "title": title, "architecture": name})
