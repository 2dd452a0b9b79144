"""The tables of trained models that laws are tested on."""

from __future__ import annotations

from pathlib import Path

import pytest
from published_tables import read_published

from edgefront.core.training.proxies.table import quality_of, read_table, where
from edgefront.core.training.proxies.trained import TrainedModels, trained_models

GOLDEN = Path(__file__).parents[1] / "golden"


def lts(backbone: str) -> TrainedModels:
    rows = where(read_table(GOLDEN / "lts_trained_wt103.jsonl"), {"backbone": backbone})
    return trained_models(rows, quality_of(rows))


@pytest.fixture(scope="session")
def gpt2() -> TrainedModels:
    return lts("gpt2")


@pytest.fixture(scope="session")
def txl() -> TrainedModels:
    return lts("txl")


@pytest.fixture(scope="session")
def hwgpt() -> TrainedModels:
    rows = read_published(GOLDEN / "hwgpt_owt_perplexity_s.csv.gz")
    return trained_models(rows, quality_of(rows))
