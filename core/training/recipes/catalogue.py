"""Named recipes: published recipes, and three unpublished recipes that are short enough for a laptop."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from edgefront.core.common.errors import NotFound
from edgefront.core.common.validation import existing
from edgefront.core.nn.dropout import NO_DROPOUT, Dropout
from edgefront.core.training.recipes.recipe import (
    Distil,
    EvaluationSettings,
    Optimizer,
    Parametrisation,
    Recipe,
    Schedule,
)

# Own recipes. On two cores they take less than a minute with 1.3 million parameters, two minutes with 5 million.

_MODERN = Recipe(
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
    evaluation=EvaluationSettings(segment=128, rows=16, every=100, tokens=1 << 15),
)
_QUICK = Recipe(
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
    evaluation=EvaluationSettings(segment=128, rows=16, every=100, tokens=1 << 15),
)
# CompleteP's rates do not apply to trained weights, because the scales of trained weights do not follow from the shape.
# The rate and the short warm-up are Minitron's (Sreenivas et al. 2024, arXiv 2408.11796).
_DISTIL = Recipe(
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
    evaluation=EvaluationSettings(segment=128, rows=16, every=100, tokens=1 << 15),
)

# PAR, Transformer-XL and BERT, with the settings of NVIDIA's code that PAR reports (Table A1).

_PAR = "PAR (arXiv 2009.04534) {}; otherwise NVIDIA DeepLearningExamples, Transformer-XL, {}.yaml"
_XL_BASE = Recipe(
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
    evaluation=EvaluationSettings(segment=64, memory=640, clamp=400, same_length=True, rows=16, every=5_000),
)
_XL_LARGE = _XL_BASE.model_copy(
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
        "evaluation": EvaluationSettings(
            segment=128, memory=1_600, clamp=1_000, same_length=True, rows=16, every=5_000
        ),
    }
)


_BERT = "PAR (arXiv 2009.04534) §3.2; otherwise NVIDIA DeepLearningExamples, BERT, pretrain_config.sh: phase {}"

# BERT has dropout on the normalised embedding, updates and attention's probabilities, none inside feed-forward blocks.
_BERT_DROPOUT = Dropout(embedding=0.1, hidden=0.1, inner=0.0, attention=0.1)

_BERT_PHASE_1 = Recipe(
    name="par-bert-phase1",
    title="PAR BERT Base, phase 1: sequences of 128",
    source=_BERT.format(1),
    architecture="par-bert-base-mlm",
    task="masked",
    steps=7_038,
    rows=65_536,
    segment=128,
    masked_fraction=0.15,
    optimizer=Optimizer(name="nvlamb", lr=6e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, decays="matrices"),
    schedule=Schedule(decay="power", power=0.5, warmup=2_001),  # 28.43 % of the steps, rounded up
    dropout=_BERT_DROPOUT,
    initialisation="bert",
    precision="float16",
    checkpoint_every=200,
    evaluation=EvaluationSettings(segment=128, rows=64, every=200, tokens=1 << 20),
)
_BERT_PHASE_2 = _BERT_PHASE_1.model_copy(
    update={
        "name": "par-bert-phase2",
        "title": "PAR BERT Base, phase 2: continues phase 1 with sequences of 512",
        "source": _BERT.format(2),
        "steps": 1_563,
        "rows": 32_768,
        "segment": 512,
        "optimizer": _BERT_PHASE_1.optimizer.model_copy(update={"lr": 4e-3}),
        "schedule": Schedule(decay="power", power=0.5, warmup=201),  # 12.8 %, rounded up
        "evaluation": EvaluationSettings(segment=512, rows=16, every=200, tokens=1 << 20),
    }
)

# SRU++ on enwik8, WikiText-103, Billion Word and IWSLT'14: the paper's tables, and its code where tables are silent.
# A recipe has one dropout rate. On words the rate also applies to the embedding's narrow vectors; on Billion Word these
# vectors and attention's probabilities have no dropout. Evaluation has equal segment and memory, and the same number of
# keys for every token, at the paper's test lengths.

_SRUPP = "SRU++ (arXiv 2102.12459) {}; otherwise asappresearch/sru, experiments/srupp_experiments"


class _SruppColumn(NamedTuple):
    """Training settings of one model: a column of the SRU++ paper's tables, completed by the paper's code."""

    name: str
    architecture: str
    source: str
    rows: int
    segment: int
    tested_at: int
    """Number of tokens of a segment in evaluation, and of the memory before the segment."""
    rate: float
    """Dropout rate."""
    lr: float = 3e-4
    warmup: int = 16_000
    steps: int = 400_000
    precision: str = "float16"


_SMALL, _LARGE = "§5, Table 1 and Appendix B", "Table 11"
_WORDS = "§5, Billion Word, and Table 6"
_SRUPP_COLUMNS = (
    _SruppColumn("enwik8-small", "srupp-small", _SMALL, 24, 512, 2_048, 0.1, lr=2.5e-4, warmup=0, precision="float32"),
    _SruppColumn("enwik8-base", "srupp-base", _LARGE, 32, 1_024, 3_072, 0.22),
    _SruppColumn("enwik8-large", "srupp-large", _LARGE, 64, 1_024, 3_072, 0.32, lr=4e-4),
    _SruppColumn("enwik8-large-ratio8", "srupp-large-ratio8", _LARGE, 64, 1_024, 3_072, 0.35, lr=4e-4),
    _SruppColumn("wt103-base", "srupp-base-wt103", "Table 12", 64, 768, 2_560, 0.15),
    _SruppColumn("wt103-large", "srupp-large-wt103", "Table 12", 64, 1_024, 2_560, 0.2),
    _SruppColumn("lm1b-base", "srupp-base-lm1b", _WORDS, 1_024, 64, 96, 0.05, lr=2e-4, steps=800_000),
    _SruppColumn("lm1b-large", "srupp-large-lm1b", _WORDS, 1_536, 64, 96, 0.1, lr=2e-4, steps=800_000),
)
_CORPORA = {
    "enwik8": ("enwik8", "enwik8"),
    "wt103": ("WikiText-103", "wikitext-103"),
    "lm1b": ("Billion Word", "lm1b"),
}
# The paper uses the settings of imitkd's teacher, except optimiser, decay and length (50 epochs of 64,000 steps). The
# learning rate in imitkd is 0.1·min(step^-0.5, step·10000^-1.5), which is 1e-3 at the end of the warm-up.
_SRUPP_IWSLT = Recipe(
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
    evaluation=EvaluationSettings(segment=125, rows=128, every=1_000),
)


def _srupp(column: _SruppColumn) -> Recipe:
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
            "source": _SRUPP.format(column.source),
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
            "evaluation": EvaluationSettings(
                segment=column.tested_at, memory=column.tested_at, same_length=True, rows=16, every=8_000
            ),
        }
    )


# LTS: one recipe per row of Table 2, which gives optimiser, steps, batch, learning rate, schedule, warm-up and dropout.
# Appendix B gives the lengths, 192 and 32 tokens, and names metaseq for the Pile. The remaining settings are from the
# code that LTS names. NVIDIA's Transformer-XL: minimum learning rate on WikiText-103, and gradient clipping. OPT, for
# the Pile: a final rate of a tenth, and initialisation with 0.006. GPT-2's rows have 50,264 tokens for any data.

_LTS = "LTS (arXiv 2203.02094) Table 2, {}; otherwise {}"

# GPT-2 has dropout on the embedding, updates and attention's probabilities, none inside its feed-forward blocks.
_GPT2_DROPOUT = Dropout(embedding=0.1, hidden=0.1, inner=0.0, attention=0.1)

_LTS_GPT2_WT103 = Recipe(
    name="lts-wt103",
    title="GPT-2 of LTS on WikiText-103 by BPE",
    source=_LTS.format("GPT-2, WT103", "NVIDIA's Transformer-XL"),
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
    evaluation=EvaluationSettings(segment=192, rows=16, every=5_000),
)
_LTS_GPT2_LM1B = _LTS_GPT2_WT103.model_copy(
    update={
        "name": "lts-lm1b",
        "title": "GPT-2 of LTS on Billion Word by BPE",
        "source": _LTS.format("GPT-2, LM1B", "NVIDIA's Transformer-XL"),
        "dataset": "lm1b",
        "task": "sentences",
        "steps": 100_000,
        "rows": 224,
        "segment": 32,
        "optimizer": Optimizer(name="lamb", lr=2.5e-4, betas=(0.9, 0.999), eps=1e-6),
        "schedule": Schedule(decay="cosine", warmup=20_000),
        "evaluation": EvaluationSettings(segment=32, rows=16, every=5_000),
    }
)
_LTS_PILE = Recipe(
    name="lts-pile",
    title="OPT-350M of LTS on 28 billion tokens of the Pile",
    source=_LTS.format("GPT-2, Pile", "OPT (arXiv 2205.01068) §2.2"),
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
    evaluation=EvaluationSettings(segment=2_048, rows=8, every=1_000, tokens=1 << 21),
)
_LTS_XL_WT103 = _LTS_GPT2_WT103.model_copy(
    update={
        "name": "lts-transformer-xl-wt103",
        "title": "Transformer-XL of LTS on WikiText-103",
        "source": _LTS.format("Transformer-XL, WT103", "NVIDIA's Transformer-XL"),
        "architecture": "lts-transformer-xl-baseline",
        "level": "words",
        "memory": 192,
        "dropout": Dropout(embedding=0.1, hidden=0.1, attention=0.0, output=0.1),
        "initialisation": "transformer_xl",
        "evaluation": EvaluationSettings(segment=192, memory=192, same_length=True, rows=16, every=5_000),
    }
)
_LTS_XL_LM1B = _LTS_XL_WT103.model_copy(
    update={
        "name": "lts-transformer-xl-lm1b",
        "title": "Transformer-XL of LTS on Billion Word",
        "source": _LTS.format("Transformer-XL, LM1B", "NVIDIA's Transformer-XL"),
        "dataset": "lm1b",
        "task": "sentences",
        "steps": 100_000,
        "rows": 224,
        "segment": 32,
        "memory": 32,
        "optimizer": Optimizer(name="adam", lr=2.5e-4, betas=(0.9, 0.999), eps=1e-8),
        "schedule": Schedule(decay="cosine", warmup=20_000),
        "dropout": NO_DROPOUT,
        "evaluation": EvaluationSettings(segment=32, memory=32, same_length=True, rows=16, every=5_000),
    }
)


@lru_cache(maxsize=1)
def _recipes() -> dict[str, Recipe]:
    # PAR trains its models like Transformer-XL, so that only the blocks differ.
    par = (
        base.model_copy(update={"name": name, "title": title, "architecture": name})
        for base, name, title in (
            (_XL_BASE, "par-base", "PAR Transformer Base on WikiText-103"),
            (_XL_LARGE, "par-large", "PAR Transformer Large on WikiText-103"),
        )
    )
    listed = [_MODERN, _QUICK, _DISTIL, _XL_BASE, next(par), _XL_LARGE, next(par), _BERT_PHASE_1, _BERT_PHASE_2]
    listed += [*map(_srupp, _SRUPP_COLUMNS), _SRUPP_IWSLT]
    listed += [_LTS_GPT2_WT103, _LTS_GPT2_LM1B, _LTS_PILE, _LTS_XL_WT103, _LTS_XL_LM1B]
    return {each.name: each for each in listed}


def recipes() -> dict[str, Recipe]:
    """Returns every recipe by name."""
    return dict(_recipes())


def recipe(name: str) -> Recipe:
    """Returns the recipe of that name. Raises `NotFound`, which names the most similar recipes."""
    if name not in _recipes():
        raise NotFound(f"no recipe named {name!r}; {existing(name, _recipes(), 'edgefront train recipes')}")
    return _recipes()[name]
