"""The programs of a server: what an operator gets wrong is one line on standard error, without the secrets in it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import text
from typer.testing import CliRunner

from edgefront.api import __main__ as api
from edgefront.api import setup
from edgefront.cli import exits
from edgefront.cli.main import app as cli
from edgefront.core.common.errors import Conflict
from edgefront.core.common.processes.program import run_program
from edgefront.core.store.database import Database
from edgefront.workers import app as workers

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Programs run in this process: what they log to goes with them."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def process_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A program sets what its whole process does; here that is the tests' own."""
    handler = signal.getsignal(signal.SIGINT)
    for module in ("edgefront.api.serve", "edgefront.workers.app"):
        monkeypatch.setattr(f"{module}.switch_often", lambda: None)
    monkeypatch.setattr(sys, "argv", ["setup", "keys"])
    yield
    signal.signal(signal.SIGINT, handler)


PROGRAMS: dict[str, Callable[[], object]] = {
    "api": lambda: run_program(api._load),
    "worker": lambda: workers.__getattr__("app"),
    "setup": lambda: run_program(lambda: setup.main),
    "migrations": lambda: command.current(Config(ROOT / "alembic.ini")),
}
"""Each as it starts in its own process."""


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
        ({"ARTIFACTS": "s3://x"}, "EDGEFRONT_ARTIFACTS: artifacts must be a folder, not a URL", (*PROGRAMS,)),
        ({"HOME": "/proc/none"}, "No such file or directory", ("api",)),
        (
            {"HTTP__CERTIFICATE": "/c", "HTTP__CERTIFICATE_KEY": "/k", "BROKER__URL": "redis://h"},
            "/c with the key /k cannot be used",
            ("api",),
        ),
        (
            {"DATABASE__URL": "sqlite:///other.db"},
            "another release made this database: its schema 9999",
            ("api", "worker", "setup"),
        ),
    ],
)
def test_what_operators_get_wrong_is_one_line(
    variables: dict[str, str],
    said: str,
    programs: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"HOME": str(tmp_path), **variables}.items():
        monkeypatch.setenv(f"EDGEFRONT_{name}", value)
    if "other.db" in variables.get("DATABASE__URL", ""):
        made_by_another_release(tmp_path / "other.db")
    for name in programs:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            PROGRAMS[name]()
        line = ended.value.code if isinstance(ended.value.code, str) else capfd.readouterr().err.strip()
        assert ended.value.code in (1, 2, line), name
        assert said in line
        assert len(line.splitlines()) == 1
        assert "secret" not in line


def made_by_another_release(path: Path) -> None:
    database = Database(f"sqlite:///{path}")
    database.migrate()
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    database.dispose()


def test_up_refuses_a_database_of_another_release(tmp_path: Path) -> None:
    made_by_another_release(tmp_path / "edgefront.db")
    done = CliRunner().invoke(cli, ["up", "--home", str(tmp_path), "--no-agent"])
    assert isinstance(done.exception, Conflict)
    assert done.exception.detail.startswith("another release made this database: its schema 9999")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("edgefront", "up", "--no-agent"), exits.REFUSED),
        (("edgefront", "data", "list"), exits.REFUSED),
        (("edgefront.api",), 2),
        (("edgefront.api.setup", "there"), 2),
        (("celery", "--app", "edgefront.workers.app", "worker"), 1),
        (("alembic", "--config", str(ROOT / "alembic.ini"), "current"), 1),
    ],
)
def test_every_program_says_so_in_a_process_of_its_own(arguments: tuple[str, ...], code: int, tmp_path: Path) -> None:
    own = {"PYTHONPATH": str(ROOT), "EDGEFRONT_HOME": str(tmp_path), "EDGEFRONT_LEASES__TTL_S": "0"}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], env=os.environ | own, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == code
    assert "EDGEFRONT_LEASES__TTL_S: must be greater than 0" in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr


STREAMS = """
import sys
from edgefront.core.common.processes.program import run_program
def main():
    with open(sys.argv[1], "w") as file:
        print("said")
        print("wrong", file=sys.stderr)
        file.write(f"{file.fileno() > 2}{sys.stdin.read()}")
run_program(lambda: main)
"""


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_program_starts_without_standard_streams(closed: str, tmp_path: Path) -> None:
    shell = f"exec {sys.executable} -c '{STREAMS.replace(chr(39), chr(34))}' {tmp_path / 'file'} {closed}"
    done = subprocess.run(shell, shell=True, input="", capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0
    assert (tmp_path / "file").read_text() == "True"
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))
    assert bool(done.stderr) == ("2>&-" not in closed)
