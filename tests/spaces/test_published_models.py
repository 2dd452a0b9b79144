"""The catalogue of published models: counts equal what is published, ids resolve, and bad rows are refused by line."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.huggingface import from_config, to_config
from edgefront.core.architectures.models import named_model
from edgefront.core.architectures.models.published import expressed, published_view
from edgefront.core.architectures.parameters import count
from edgefront.core.architectures.published import published_models, read_catalogue, score_tables
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.training.evaluation.given_model import architecture_of, has_weights, named_as, published_as

COUNTED = json.loads((Path(__file__).parents[1] / "golden" / "published_parameters.json").read_text(encoding="utf-8"))
DESCRIBED = {
    name: architecture
    for name, model in published_models().items()
    if isinstance(architecture := expressed(model), Architecture)
}
ROW: dict[str, Any] = {
    "id": "me/tiny",
    "kind": "base",
    "licence": "mit",
    "parameters": "0.4M",
    "config": {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "rope_theta": 10000,
        "num_attention_heads": 4, "vocab_size": 5000, "tie_word_embeddings": True, "rms_norm_eps": 1e-05,
    },
    "scores": [{"table": "mine", "values": {"accuracy": 41.5}}],
}  # fmt: skip

UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}


def agrees(stated: str, counted: int) -> bool:
    """Whether the counted number of parameters, rounded or truncated to as many digits, equals the stated number."""
    match = re.fullmatch(r"([0-9]+)(?:\.([0-9]+))?([KMB]?)", stated)
    assert match is not None
    whole, decimals, unit = match[1], match[2] or "", match[3]
    step = Fraction(UNITS[unit], 10 ** len(decimals))
    distance = counted - int(whole + decimals) * step
    return distance == 0 if unit == "" else -step / 2 <= distance < step


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file for rows of one's own, which commands and the service read."""
    path = tmp_path / "models.jsonl"
    monkeypatch.setenv("EDGEFRONT_CATALOGUE", str(path))
    return path


def written(path: Path, *rows: dict[str, Any] | str) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", DESCRIBED)
def test_parameters_are_those_published(name: str) -> None:
    model, total = published_models()[name], count(DESCRIBED[name]).total
    assert model.parameters is None or agrees(model.parameters, total)
    assert total == COUNTED.get(name, total)
    assert model.base is None or total == count(DESCRIBED[model.base]).total
    assert model.vocab_size == DESCRIBED[name].embedding.vocab_size
    assert model.context_length in (None, DESCRIBED[name].max_length, DESCRIBED[name].stated_length)
    # Danube 2 has no window, which makes it a Llama.
    written = to_config(DESCRIBED[name])
    assert from_config(written) == DESCRIBED[name]
    assert written["model_type"] == (model.config or {})["model_type"] or "danube2" in name


def test_nothing_that_a_description_has_is_said_to_be_lacking() -> None:
    assert len(DESCRIBED) >= 82
    assert [name for name in DESCRIBED if published_models()[name].needs] == []


@pytest.mark.parametrize("name", sorted(published_models().keys() - DESCRIBED.keys()))
def test_what_cannot_be_described_says_why(name: str) -> None:
    view = published_view(published_models()[name])
    assert view.not_expressible
    assert view.digest is view.counted_parameters is None
    with pytest.raises(InvalidInput) as raised:
        named_model(name)
    assert raised.value.detail == f"{name} cannot be described: {view.not_expressible}"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nvidia/Nemotron-Flash-1B", "DeltaNet and Mamba-2 layers"),
        ("Qwen/Qwen3.5-0.8B-Base", "gated DeltaNet"),
        ("facebook/MobileLLM-R1-140M-base", "no source states rope_theta, rms_norm_eps"),
        ("bigcode/starcoderbase-1b", "its config.json was not read"),
        ("bigscience/bloom-560m", "attention with linear biases"),
        ("facebook/MobileLLM-125M-layer-share", "layers that share weights"),
    ],
)
def test_reasons_name_what_is_missing(name: str, reason: str) -> None:
    assert reason in (published_view(published_models()[name]).not_expressible or "")


def test_every_score_is_of_a_table_that_says_where_it_is_from() -> None:
    tables = score_tables()
    assert all(table.source and table.protocol for table in tables.values())
    scored = {score.table for model in published_models().values() for score in model.scores}
    assert scored == tables.keys()
    for model in published_models().values():
        places = [(score.table, score.weight_format) for score in model.scores]
        assert len(places) == len(set(places)), model.id


def test_what_no_source_states_is_unknown() -> None:
    base, tuned = (published_models()[name] for name in ("Qwen/Qwen2-0.5B", "Qwen/Qwen2-0.5B-Instruct"))
    assert (base.context_length, tuned.context_length) == (None, 32_768)
    assert "context_length" not in DESCRIBED[base.id].canonical
    assert tuned.licence is None


@pytest.mark.parametrize(
    ("stated", "counted", "equal"),
    [
        ("134515008", 134_515_008, True),
        ("134515008", 134_515_009, False),
        ("362M", 361_821_120, True),
        ("362M", 361_400_000, False),
        ("1.23B", 1_235_814_400, True),  # cut off
        ("345.3M", 345_355_200, True),
        ("1.23B", 1_240_000_000, False),
    ],
)
def test_a_stated_count_is_compared_at_its_digits(stated: str, counted: int, equal: bool) -> None:
    assert agrees(stated, counted) is equal


def test_a_hub_id_is_a_model_and_a_folder_of_that_name_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "HuggingFaceTB/SmolLM2-135M"
    assert architecture_of(name) == DESCRIBED[name]
    assert not has_weights(name)
    named, facts = named_as(name), published_as(name)
    assert named is not None
    assert facts is not None
    assert (named.name, facts.id) == (name, name)
    assert published_as("gpt2-small") is None
    monkeypatch.chdir(tmp_path)
    other = named_model("smollm2-360m").architecture
    (tmp_path / "HuggingFaceTB").mkdir()
    (tmp_path / name).write_text(other.canonical_json, encoding="utf-8")
    assert architecture_of(name) == other
    assert named_as(name) is published_as(name) is None


def test_an_unknown_id_names_the_nearest() -> None:
    for resolve in (named_model, architecture_of):
        with pytest.raises(NotFound, match=r"the nearest are Qwen/Qwen3-0\.6B, .*`edgefront model list --published`"):
            resolve("qwen/qwen3-0.6b")


def test_a_catalogue_of_ones_own(own: Path) -> None:
    written(own, ROW, "", {"id": "Qwen/Qwen3-0.6B", "kind": "instruct"})
    assert architecture_of("me/tiny").d_model == 64
    view = published_view(published_models()["me/tiny"])
    assert agrees("0.4M", view.counted_parameters or 0)
    assert view.scores[0].values == {"accuracy": 41.5}
    # A row of one's own replaces the one that comes along.
    assert published_view(published_models()["Qwen/Qwen3-0.6B"]).not_expressible == "its config.json was not read"
    with pytest.raises(NotFound, match="me/tiny"):
        architecture_of("me/tinny")


@pytest.mark.parametrize(
    ("bad", "field", "words"),
    [
        ({**ROW, "id": "tiny"}, "id", "line 3: id: must be an id of the Hugging Face Hub: OWNER/NAME"),
        ({"id": "me/other"}, "kind", "line 3: kind is missing"),
        ({**ROW, "kind": "chat"}, "kind", "line 3: kind: must be 'base', 'instruct' or 'post-trained'"),
        ({**ROW, "context_length": "4k"}, "context_length", "line 3: context_length: must be an integer"),
        ({**ROW, "training_tokens": 0}, "training_tokens", "line 3: training_tokens"),
        ({**ROW, "parameters": "many"}, "parameters", "must be a count such as 134515008, 362M or 1.71B"),
        ({**ROW, "contxt_length": 9}, "contxt_length", "there is no such field; do you mean context_length?"),
        ({**ROW, "scores": [{"table": "a", "values": {"task": "high"}}]}, "scores.0.values.task", "a number"),
        ({**ROW, "id": "me/first"}, "id", "line 3: another line has the id me/first"),
        ("{", "", "line 3 is not JSON"),
        ("[1]", "", "line 3 is not a JSON object, but a list"),
    ],
)  # fmt: skip
def test_a_bad_row_is_refused_by_line_and_field(own: Path, bad: Any, field: str, words: str) -> None:
    written(own, {**ROW, "id": "me/first"}, "", bad)
    with pytest.raises(InvalidInput) as raised:
        published_models()
    assert raised.value.detail.startswith(f"{own}, line 3")
    assert words in raised.value.detail
    assert raised.value.field == field


def test_a_catalogue_that_cannot_be_read_is_named(own: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No such file"):
        published_models()
    with pytest.raises(NotFound, match="Is a directory"):
        read_catalogue(tmp_path)
    own.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        read_catalogue(own)
