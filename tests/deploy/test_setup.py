"""`python -m edgefront.api.setup`: what a team's server starts from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgefront.api.setup import set_up
from edgefront.core.services.access.keys import authenticate, list_keys, revoke_key
from edgefront.core.store.database import Database

ROOT = Path(__file__).parents[2]


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


def test_the_command_migrates_a_new_database(tmp_path: Path) -> None:
    environment = {**os.environ, "EDGEFRONT_DATABASE__URL": f"sqlite:///{tmp_path / 'new.db'}"}
    command = [sys.executable, "-m", "edgefront.api.setup", str(tmp_path / "setup")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert str(tmp_path / "setup" / "admin-key") in done.stdout
    assert (tmp_path / "setup" / "admin-key").read_text().strip() not in done.stdout


def test_an_undecodable_key_is_replaced(database: Database, tmp_path: Path) -> None:
    (tmp_path / "admin-key").write_bytes(b"\xff\xfe")
    set_up(database, tmp_path)
    assert (tmp_path / "admin-key").read_text().startswith("efk_")


PROGRAMS = {
    "api": ("edgefront.api",),
    "worker": ("celery", "--app", "edgefront.workers.app", "worker", "--pool", "solo"),
    "setup": ("edgefront.api.setup", "keys"),
    "migrations": ("alembic", "current"),
}


@pytest.mark.parametrize(
    ("variables", "said", "programs"),
    [
        ({"DATABASE__URL": "mysql://u:secret@h/d"}, "give a SQLite file or a Postgres database", (*PROGRAMS,)),
        ({"DATABASE__URL": "postgresql://u:secret@h:port/d"}, "not the URL of a database", ("api", "worker", "setup")),
        ({"DATABASE__URL": "postgresql://u:secret@h/d?foo=1"}, 'invalid connection option "foo"', ("worker", "setup")),
        ({"DATABASE__URL": "postgres://u:secret@127.0.0.1:1/d"}, "database is unavailable", ("setup", "migrations")),
        (
            {"BROKER__URL": "redis://:secret/x@h/0"},
            "EDGEFRONT_BROKER__URL: this is not the URL of a broker",
            (*PROGRAMS,),
        ),
        ({"ARTIFACTS": "s3://x"}, "EDGEFRONT_ARTIFACTS: artifacts are kept in a folder, not at a URL", (*PROGRAMS,)),
        ({"HOME": "/proc/none"}, "No such file or directory", ("api",)),
        (
            {"HTTP__CERTIFICATE": "/c", "HTTP__CERTIFICATE_KEY": "/k", "BROKER__URL": "redis://h"},
            "/c with the key /k cannot be used",
            ("api",),
        ),
    ],
)
def test_what_operators_get_wrong_is_one_line(
    variables: dict[str, str], said: str, programs: tuple[str, ...], tmp_path: Path
) -> None:
    own = {"EDGEFRONT_HOME": str(tmp_path), **{f"EDGEFRONT_{name}": value for name, value in variables.items()}}
    for name in programs:
        command = [sys.executable, "-m", *PROGRAMS[name]]
        folder = ROOT if name == "migrations" else tmp_path
        done = subprocess.run(command, cwd=folder, env=os.environ | own, capture_output=True, text=True, check=False)
        assert done.returncode in (1, 2), name
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert "secret" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_program_starts_without_standard_streams(closed: str, tmp_path: Path) -> None:
    environment = os.environ | {"EDGEFRONT_DATABASE__URL": f"sqlite:///{tmp_path / 'new.db'}"}
    command = f"{sys.executable} -m edgefront.api.setup {tmp_path / 'setup'} {closed}"
    done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))
