"""Named models count as published, and files resolve to architectures or to one clear error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgefront.core.architectures.cost.costs import costs
from edgefront.core.architectures.models import named_model, named_models
from edgefront.core.common.errors import ArchitectureError, InvalidInput, NotFound
from edgefront.core.training.evaluation.given_model import MAX_DESCRIPTION_BYTES, architecture_of


def test_embeddings_are_scaled_where_the_authors_code_does() -> None:
    """asappresearch/sru 3.0.0-dev has `scale_emb=False` for WikiText-103 and Billion Word; Transformer-XL scales."""
    scaled = {name: model.architecture.scaled_embedding for name, model in named_models().items()}
    of_sru = {name for name in scaled if name.startswith(("sru-", "srupp-")) and name.endswith(("-wt103", "-lm1b"))}
    assert len(of_sru) == 9
    assert not any(scaled[name] for name in of_sru)
    assert all(scaled[name] for name in scaled if name.startswith(("transformer-xl-", "par-base", "sandwich-")))


def test_every_model_has_a_source_and_a_digest_of_its_own() -> None:
    models = named_models()
    assert all(name == model.name and model.source for name, model in models.items())
    assert len({model.architecture.digest for model in models.values()}) == len(models)
    assert costs(named_model("distilgpt2").architecture).total_parameters == 81_912_576  # as the checkpoint


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "model.json: not JSON"),
        (b"[]", "JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\xff\xfe", "UTF-8"),
        (b" " * (MAX_DESCRIPTION_BYTES + 1), "at most"),
        (b'{"version": 0}', "^version: this release reads version 1, not 0$"),
        (
            b'{"d_model": 64, "embedding": {"vocab_size": 9}, "blocks": [{"kind": "attention", "n_head": 5}]}',
            "blocks.0.n_",
        ),
    ],
)
def test_a_malformed_file_is_one_clear_error(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "model.json"
    file.write_bytes(content)
    with pytest.raises(ArchitectureError, match=words):
        architecture_of(str(file))


@pytest.mark.parametrize("content", [b"\xff", b" " * (MAX_DESCRIPTION_BYTES + 1), b"{"])
def test_a_file_that_is_no_description_is_named_once(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ArchitectureError) as raised:
        architecture_of(path)
    assert raised.value.detail.count(str(path)) == 1


def test_a_pointer_of_git_lfs_is_called_one_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    with pytest.raises(InvalidInput, match=r"model\.gguf is a pointer of Git LFS"):
        architecture_of(path)


def test_a_path_that_no_file_system_takes_is_not_found() -> None:
    with pytest.raises(NotFound):
        architecture_of(os.sep + "x" * 5000)
    with pytest.raises(NotFound):
        architecture_of("nul\0byte")
