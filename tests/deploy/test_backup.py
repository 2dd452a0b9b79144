"""Backups of the embedded service, made while it runs, and restored into an empty data folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edgefront.cli import main as cli
from edgefront.client.client import Client
from edgefront.core.common.errors import Conflict, InvalidInput, NotFound, Unavailable
from edgefront.core.services.settings import Settings
from edgefront.embedded.backup import back_up
from edgefront.embedded.service import EmbeddedService


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EDGEFRONT_HOME", "EDGEFRONT_DATABASE__URL", "EDGEFRONT_ARTIFACTS"):
        monkeypatch.delenv(name, raising=False)


def test_a_running_service_is_copied_and_goes_on_elsewhere(tmp_path: Path) -> None:
    home, copy, other = tmp_path / "home", tmp_path / "copy", tmp_path / "other"
    with EmbeddedService(home, port=0, agent=False, isolated=True) as service:
        weights = home / "artifacts" / "trainings" / "trn_1" / "result" / "model.safetensors"
        weights.parent.mkdir(parents=True)
        weights.write_bytes(b"weights")
        with Client(home=home) as client:
            made = client.keys.create("ada")
        done = run("backup", copy, "--home", home, "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["bytes"] > 7
        key = service.key
    assert {path.name for path in copy.iterdir()} == {"edgefront.db", "artifacts", "key"}
    assert (copy / "key").stat().st_mode & 0o077 == 0
    assert isinstance(run("backup", copy, "--home", home).exception, Conflict)  # it overwrites no backup

    assert run("restore", copy, "--home", other).exit_code == 0
    assert (other / weights.relative_to(home)).read_bytes() == b"weights"
    assert isinstance(run("restore", copy, "--home", other).exception, Conflict)
    with EmbeddedService(other, port=0, agent=False, isolated=True) as service, Client(home=other) as client:
        assert service.key == key
        assert made.id in [item.id for item in client.keys.list()]
        with pytest.raises(Conflict, match="already runs"):
            run_restore(copy, other)


def run_restore(copy: Path, home: Path) -> None:
    failed = run("restore", copy, "--home", home).exception
    assert failed is not None
    raise failed


def test_what_cannot_be_copied_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Settings(home=tmp_path / "nothing")
    with pytest.raises(NotFound, match="name the data folder of the service with --home"):
        back_up(nothing, tmp_path / "copy")
    with pytest.raises(NotFound, match="is not a backup: it has no"):
        run_restore(tmp_path, tmp_path / "home")
    monkeypatch.setenv("EDGEFRONT_DATABASE__URL", "postgresql://edgefront@localhost/edgefront")
    with pytest.raises(InvalidInput, match="back that up with pg_dump"):
        back_up(Settings(), tmp_path / "copy")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with EmbeddedService(home, port=0, agent=False, isolated=True):
        pass
    (home / "artifacts").mkdir(exist_ok=True)
    (home / "artifacts" / "large").write_bytes(b"0")
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    copy = tmp_path / "copy"

    def fill(_source: object, _target: object) -> None:
        with full.open("wb", buffering=0) as file:
            file.write(b"0")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("edgefront.embedded.backup.shutil.copy2", fill)
        with pytest.raises(Unavailable, match="the disk is full"):
            back_up(Settings(home=home), copy)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
