"""Every number of every recipe as it was published, written down here a second time from the papers and their code."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import pytest

from edgefront.core.architectures.models import named_models
from edgefront.core.common.errors import InvalidInput, NotFound, within
from edgefront.core.training.optimizers import learning_rate
from edgefront.core.training.recipes.catalogue import recipe, recipes
from edgefront.core.training.recipes.recipe import CONTIGUOUS, MODERN, Recipe, check_task, default_recipe

# PAR (arXiv 2009.04534) Table A1 and §3.1; NVIDIA DeepLearningExamples wt103_base.yaml and wt103_large.yaml, train.py.
XL = {
    "dataset": "wikitext-103",
    "task": "streams",
    "optimizer.name": "lamb",
    "optimizer.lr": 0.01,
    "optimizer.betas": [0.9, 0.999],
    "optimizer.eps": 1e-6,
    "optimizer.weight_decay": 0.0,
    "schedule.decay": "cosine",
    "clip": 0.25,
    "dropout.inner": None,
    "dropout.narrow": 0.0,
    "evaluation.same_length": True,
    "evaluation.every": 5000,
    "evaluation.rows": 16,
    "precision": "float16",
    "epoch_resets": False,
}
XL_BASE = XL | {
    "steps": 40_000,
    "rows": 256,
    "segment": 192,
    "memory": 192,
    "schedule.warmup": 1_000,
    "schedule.min_lr": 0.001,
    "dropout.embedding": 0.1,
    "dropout.hidden": 0.1,
    "dropout.attention": 0.0,
    "dropout.output": 0.1,
    "initialisation": "transformer_xl",
    "evaluation.segment": 64,
    "evaluation.memory": 640,
    "evaluation.clamp": 400,
}
XL_LARGE = XL | {
    "steps": 100_000,
    "rows": 128,
    "segment": 384,
    "memory": 384,
    "schedule.warmup": 16_000,
    "schedule.min_lr": 0.0001,
    "dropout.embedding": 0.2,
    "dropout.hidden": 0.2,
    "dropout.attention": 0.2,
    "dropout.output": 0.2,
    "initialisation": "transformer_xl_large",
    "evaluation.segment": 128,
    "evaluation.memory": 1600,
    "evaluation.clamp": 1000,
}
# SRU++ (arXiv 2102.12459) §4, Tables 11 and 12 and Billion Word's paragraph; asappresearch/sru's arguments.
SRUPP = {
    "optimizer.name": "radam",
    "optimizer.betas": [0.9, 0.999],
    "optimizer.eps": 1e-8,
    "optimizer.weight_decay": 0.1,
    "optimizer.decays": "all",
    "schedule.decay": "cosine_whole",
    "schedule.min_lr": 0.0,
    "clip": 1.0,
    "initialisation": "srupp",
    "evaluation.same_length": True,
    "evaluation.every": 8000,
    "evaluation.clamp": None,
}


def srupp(corpus: str, rows: int, unroll: int, tested: int, dropout: float, lr: float, **others: Any) -> dict[str, Any]:
    words = corpus == "lm1b"
    return SRUPP | {
        "dataset": corpus,
        "task": "sentences" if words else "streams",
        "epoch_resets": not words,
        "rows": rows,
        "segment": unroll,
        "memory": unroll,
        "evaluation.segment": tested,
        "evaluation.memory": tested,
        "dropout.embedding": dropout,
        "dropout.hidden": dropout,
        "dropout.highway": dropout,
        "dropout.output": dropout,
        "dropout.attention": 0.0 if words else dropout,
        "dropout.narrow": dropout if corpus == "wikitext-103" else 0.0,
        "optimizer.lr": lr,
        "schedule.warmup": 16_000,
        "steps": 800_000 if words else 400_000,
        "precision": "float16",
        **others,
    }


# LTS (arXiv 2203.02094) Table 2 and Appendix B.
def lts(
    name: str, steps: int, rows: int, lr: float, warmup: int, dropout: float, attention: float, length: int
) -> dict[str, Any]:
    return {
        "optimizer.name": name,
        "steps": steps,
        "rows": rows,
        "optimizer.lr": lr,
        "schedule.warmup": warmup,
        "dropout.hidden": dropout,
        "dropout.attention": attention,
        "segment": length,
        "evaluation.segment": length,
    }


# PAR §3.2; NVIDIA's pretrain_config.sh: 6e-3, 0.2843 and 4e-3, 0.128; polynomial decay of degree 0.5.
BERT = {
    "architecture": "par-bert-base-mlm",
    "task": "masked",
    "masked_fraction": 0.15,
    "optimizer.name": "nvlamb",
    "optimizer.betas": [0.9, 0.999],
    "optimizer.eps": 1e-6,
    "optimizer.weight_decay": 0.01,
    "optimizer.decays": "matrices",
    "schedule.decay": "power",
    "schedule.power": 0.5,
    "schedule.min_lr": 0.0,
    "dropout.embedding": 0.1,
    "dropout.hidden": 0.1,
    "dropout.inner": 0.0,
    "dropout.attention": 0.1,
    "dropout.output": 0.0,
    "initialisation": "bert",
    "precision": "float16",
}

OURS = {MODERN, CONTIGUOUS, "distil"}
PUBLISHED: dict[str, dict[str, Any]] = {
    "transformer-xl-base": XL_BASE | {"architecture": "transformer-xl-base"},
    "par-base": XL_BASE | {"architecture": "par-base"},
    "transformer-xl-large": XL_LARGE | {"architecture": "transformer-xl-large"},
    "par-large": XL_LARGE | {"architecture": "par-large"},
    "srupp-enwik8-small": srupp(
        "enwik8", 24, 512, 2048, 0.1, 2.5e-4, architecture="srupp-small", precision="float32", **{"schedule.warmup": 0}
    ),
    "srupp-enwik8-base": srupp("enwik8", 4 * 8, 1024, 3072, 0.22, 3e-4, architecture="srupp-base"),
    "srupp-enwik8-large": srupp("enwik8", 8 * 8, 1024, 3072, 0.32, 4e-4, architecture="srupp-large"),
    "srupp-enwik8-large-ratio8": srupp("enwik8", 8 * 8, 1024, 3072, 0.35, 4e-4, architecture="srupp-large-ratio8"),
    "srupp-wt103-base": srupp("wikitext-103", 8 * 8, 768, 2560, 0.15, 3e-4, architecture="srupp-base-wt103"),
    "srupp-wt103-large": srupp("wikitext-103", 8 * 8, 1024, 2560, 0.2, 3e-4, architecture="srupp-large-wt103"),
    "srupp-lm1b-base": srupp("lm1b", 128 * 8, 64, 96, 0.05, 2e-4, architecture="srupp-base-lm1b"),
    "srupp-lm1b-large": srupp("lm1b", 192 * 8, 64, 96, 0.1, 2e-4, architecture="srupp-large-lm1b"),
    "lts-wt103": lts("lamb", 40_000, 256, 1e-2, 1_000, 0.1, 0.1, 192)
    | {"dataset": "wikitext-103", "level": "bpe", "schedule.decay": "cosine", "initialisation": "gpt2"},
    "lts-lm1b": lts("lamb", 100_000, 224, 2.5e-4, 20_000, 0.1, 0.1, 32)
    | {"dataset": "lm1b", "level": "bpe", "task": "sentences", "schedule.decay": "cosine"},
    "lts-pile": lts("adamw", 54_800, 256, 3e-5, 715, 0.1, 0.0, 2048)
    | {"dataset": "pile", "level": "bpe", "schedule.decay": "power", "schedule.power": 1.0}
    # OPT (arXiv 2205.01068) §2.2: down to a tenth, N(0, 0.006).
    | {"architecture": "lts-opt-baseline", "schedule.min_lr": 3e-6, "initialisation": "opt"},
    "lts-transformer-xl-wt103": lts("lamb", 40_000, 256, 1e-2, 1_000, 0.1, 0.0, 192)
    | {"dataset": "wikitext-103", "schedule.decay": "cosine", "memory": 192},
    "lts-transformer-xl-lm1b": lts("adam", 100_000, 224, 2.5e-4, 20_000, 0.0, 0.0, 32)
    | {"dataset": "lm1b", "schedule.decay": "cosine", "memory": 32},
    "par-bert-phase1": BERT
    | {"steps": 7038, "rows": 64 * 1024, "segment": 128, "optimizer.lr": 6e-3, "schedule.warmup": ceil(0.2843 * 7038)},
    "par-bert-phase2": BERT
    | {"steps": 1563, "rows": 32 * 1024, "segment": 512, "optimizer.lr": 4e-3, "schedule.warmup": ceil(0.128 * 1563)},
    # SRU++ Appendix B; imitkd's teacher.yaml: Noam of 0.1 and 10,000, batches of 128, at most 125 tokens.
    "iwslt": {
        "architecture": "srupp-iwslt",
        "dataset": "iwslt14",
        "task": "pairs",
        "steps": 64_000,
        "rows": 128,
        "segment": 125,
        "optimizer.name": "radam",
        "optimizer.lr": pytest.approx(0.1 * 10_000**-0.5),
        "optimizer.betas": [0.9, 0.999],
        "optimizer.weight_decay": 0.1,
        "optimizer.decays": "all",
        "schedule.decay": "inverse_sqrt",
        "schedule.warmup": 10_000,
        "clip": 5.0,
        "label_smoothing": 0.0,
        "dropout.hidden": 0.1,
        "initialisation": "translation",
    },
}


@pytest.mark.parametrize("name", recipes())
def test_as_published(name: str) -> None:
    if name in OURS:
        assert recipe(name).steps * recipe(name).rows * recipe(name).segment < 1_000_000
        return
    found = recipe(name).model_dump(mode="json")
    flat = {
        f"{key}.{inner}" if isinstance(part, dict) else key: value
        for key, part in found.items()
        for inner, value in (part.items() if isinstance(part, dict) else [("", part)])
    }
    assert {key: flat[key] for key in PUBLISHED[name]} == PUBLISHED[name]


def test_every_published_one_is_there() -> None:
    assert set(recipes()) == {*PUBLISHED, *OURS}


@pytest.mark.parametrize("name", recipes())
def test_each_is_whole(name: str) -> None:
    found = recipe(name)
    assert found.name == name
    assert found.title
    assert found.source
    assert found.architecture is None or found.architecture in named_models()
    assert Recipe.parse(found.model_dump(mode="json")) == found
    at_most = max(found.schedule.min_lr, found.optimizer.lr)
    for step in (0, found.schedule.warmup, found.steps - 2):  # BERT's last step has a rate of 0
        assert 0 < learning_rate(found.schedule, found.optimizer.lr, step, found.steps) <= at_most * (1 + 1e-6)


def test_of_an_unknown_one_the_nearest_are_named() -> None:
    listed = rf"`edgefront train recipes` lists all {len(recipes())}"
    with pytest.raises(NotFound, match=rf"no recipe named 'quik'; the nearest is quick; {listed}"):
        recipe("quik")


def test_overrides_are_checked() -> None:
    changed = recipe("quick").overridden({"steps": 50, "optimizer": {"lr": 0.01}, "dropout": {"inner": 0.1}})
    assert (changed.steps, changed.optimizer.lr, changed.optimizer.betas) == (50, 0.01, (0.9, 0.95))
    assert changed.dropout.inner == 0.1
    with pytest.raises(InvalidInput) as caught:
        recipe("quick").overridden({"dropout": {"hiden": 0.1}})
    assert "hiden" in str(caught.value)


def test_what_came_later_leaves_the_published_ones_as_they_were() -> None:
    """Their digests, and those of stored trainings, have none of its fields."""
    added = {"order", "parametrisation", "distil"}
    of = {"modern": {"order", "parametrisation"}, "distil": {"order", "distil"}}
    for name, a_recipe in recipes().items():
        expected = of.get(name, set())
        assert added & set(a_recipe.effective()) == expected, name
        stored = a_recipe.model_dump(mode="json")
        assert Recipe.parse({field: stored[field] for field in stored if field not in added - expected}) == a_recipe


@pytest.mark.parametrize(
    ("name", "changes", "field"),
    [
        ("modern", {"memory": 128}, "recipe.order"),
        ("modern", {"task": "sentences"}, "recipe.order"),
        ("modern", {"initialisation": "gpt2"}, "recipe.parametrisation"),
        ("modern", {"parametrisation": None}, "recipe.parametrisation"),
        ("modern", {"optimizer": {"name": "lamb"}}, "recipe.optimizer.name"),
        ("modern", {"parametrisation": {"base_width": 0}}, "recipe.parametrisation.base_width"),
        ("distil", {"distil": {"temperature": 0.0}}, "recipe.distil.temperature"),
        ("distil", {"distil": {"share": 0.0}}, "recipe.distil.share"),
        ("distil", {"distil": {"share": 1.5}}, "recipe.distil.share"),
        ("distil", {"order": "contiguous", "memory": 8}, "recipe.distil"),
        ("distil", {"order": "contiguous", "task": "sentences"}, "recipe.distil"),
    ],
)
def test_what_does_not_go_together_is_refused_by_its_field(name: str, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught, within("recipe"):
        recipe(name).overridden(changes)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("model", "chosen"),
    [
        ("lts-gpt2-baseline", "modern"),
        ("smollm2-135m", "modern"),
        ("lfm2-350m", "modern"),
        ("transformer-xl-base", "quick"),
        ("par-base", "quick"),
        ("srupp-small", "quick"),
    ],
)
def test_the_default_is_modern_but_for_models_with_memory_which_it_refuses(model: str, chosen: str) -> None:
    architecture = named_models()[model].architecture
    assert default_recipe([architecture]) == chosen
    check_task(architecture, recipe(chosen))
    if chosen != "modern":
        with pytest.raises(InvalidInput, match="modern shuffles the segments") as caught:
            check_task(architecture, recipe("modern"))
        assert str(caught.value.allowed).startswith("a recipe with contiguous text: quick or ")
        gpt2 = named_models()["lts-gpt2-baseline"].architecture
        assert default_recipe([gpt2, architecture]) == "quick"  # what is trained together has one recipe


def test_the_page_has_every_recipe_and_field() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = "".join((docs / name).read_text(encoding="utf-8") for name in ("training-recipes.md", "recipe-fields.md"))
    for name, a_recipe in recipes().items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert f"| {a_recipe.steps:,} | {a_recipe.rows:,} × {a_recipe.segment:,} " in row
        assert f"{a_recipe.optimizer.name}: {a_recipe.optimizer.lr:g}" in row
    for field, value in (recipe("modern").model_dump() | {"distil": recipe("distil").model_dump()["distil"]}).items():
        for path in [f"{field}.{inner}" for inner in value] if isinstance(value, dict) else [field]:
            assert f"`{path}`" in page, path
