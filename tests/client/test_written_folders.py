"""A model for transformers is a folder of the name that `--output` gives, unless that ends in `.tar`."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edgefront.cli.main import app

SMALL = {
    "d_model": 32,
    "positions": {"kind": "learned", "length": 64},
    "embedding": {"vocab_size": 97},
    "blocks": [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 64}],
}
FILES = {"README.md", "config.json", "generation_config.json", "model.safetensors"}


def built(folder: Path, *words: str) -> Result:
    (folder / "small.json").write_text(json.dumps(SMALL))
    return CliRunner().invoke(app, ["model", "build", str(folder / "small.json"), "--format", "transformers", *words])


def test_a_folder_of_that_name(tmp_path: Path) -> None:
    done = built(tmp_path, "-o", str(tmp_path / "mine"), "--json")
    assert done.exit_code == 0, done.output
    assert {file.name for file in (tmp_path / "mine").iterdir()} == FILES
    output = json.loads(done.stdout)
    assert output["path"] == str(tmp_path / "mine")
    assert output["bytes"] == sum(file.stat().st_size for file in (tmp_path / "mine").iterdir())
    assert {file.name for file in tmp_path.iterdir()} == {"mine", "small.json"}


@pytest.mark.parametrize("output", ["mine.tar", "."])
def test_an_archive_where_the_name_says_so_or_is_a_folder_of_other_things(tmp_path: Path, output: str) -> None:
    done = built(tmp_path, "-o", str(tmp_path / output), "--json")
    assert done.exit_code == 0, done.output
    with tarfile.open(json.loads(done.stdout)["path"]) as archive:
        assert {Path(name).name for name in archive.getnames()} == FILES
