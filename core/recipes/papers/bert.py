"""PAR BERT's two phases of pre-training: masked tokens of books and Wikipedia, short sequences first."""

from __future__ import annotations

from collections.abc import Iterator

from edgefront.core.nn.dropout import Dropout
from edgefront.core.recipes.recipe import Evaluation, Optimizer, Recipe, Schedule

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
    """Both phases. The gradient's norm is cut to 1 by NVLAMB itself."""
    yield _PHASE_1
    yield _PHASE_2
