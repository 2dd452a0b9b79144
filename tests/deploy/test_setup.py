"""`python -m edgefront.api.setup`: what a team's server starts from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from edgefront.api.setup import set_up
from edgefront.core.services.access.keys import authenticate, list_keys, revoke_key
from edgefront.core.store.database import Database


def test_it_makes_a_key_and_a_token_that_only_the_owner_can_read(database: Database, tmp_path: Path) -> None:
    folder = tmp_path / "setup"
    set_up(database, folder)
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in folder.iterdir()} == {
        "admin-key": "0o600",
        "enrolment-token": "0o600",
    }
    with database.read() as session:
        principal = authenticate(session, (folder / "admin-key").read_text().strip(), database.now(session))
    assert principal.role == "admin"
    assert (folder / "enrolment-token").read_text().startswith("efe_")


def test_the_token_is_put_where_no_key_is(database: Database, tmp_path: Path) -> None:
    set_up(database, tmp_path / "setup", tmp_path / "enrolment")
    assert [path.name for path in (tmp_path / "setup").iterdir()] == ["admin-key"]
    assert [path.name for path in (tmp_path / "enrolment").iterdir()] == ["enrolment-token"]
    assert oct((tmp_path / "enrolment").stat().st_mode & 0o777) == "0o700"


def test_again_it_keeps_the_key_and_renews_the_token(database: Database, tmp_path: Path) -> None:
    set_up(database, tmp_path)
    key, token = (tmp_path / "admin-key").read_text(), (tmp_path / "enrolment-token").read_text()
    set_up(database, tmp_path)
    assert (tmp_path / "admin-key").read_text() == key
    assert (tmp_path / "enrolment-token").read_text() != token
    with database.read() as session:
        principal = authenticate(session, key.strip(), database.now(session))
        assert [kept.id for kept in list_keys(session, principal)] == [principal.key_id]


def test_a_revoked_or_foreign_key_is_replaced(database: Database, tmp_path: Path) -> None:
    set_up(database, tmp_path)
    key = (tmp_path / "admin-key").read_text()
    with database.write() as session:
        principal = authenticate(session, key.strip(), database.now(session))
        revoke_key(session, principal, principal.key_id, database.now(session), force=True)
    set_up(database, tmp_path)
    assert (tmp_path / "admin-key").read_text() != key
    (tmp_path / "admin-key").write_text("efk_of-another-database\n")
    set_up(database, tmp_path)
    assert (tmp_path / "admin-key").read_text() != "efk_of-another-database\n"


def test_the_command_migrates_a_new_database_in_any_folder(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "EDGEFRONT_DATABASE__URL": f"sqlite:///{tmp_path / 'new.db'}",
    }
    command = [sys.executable, "-m", "edgefront.api.setup", str(tmp_path / "setup")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert str(tmp_path / "setup" / "admin-key") in done.stdout
    assert (tmp_path / "setup" / "admin-key").read_text().strip() not in done.stdout


def test_an_undecodable_key_is_replaced(database: Database, tmp_path: Path) -> None:
    (tmp_path / "admin-key").write_bytes(b"\xff\xfe")
    set_up(database, tmp_path)
    assert (tmp_path / "admin-key").read_text().startswith("efk_")
