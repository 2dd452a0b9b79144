"""Runs `alembic check` on new SQLite and Postgres databases: migrations must create exactly the declared tables."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import psycopg
from sqlalchemy import make_url

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import servers  # noqa: E402


def check(url: str) -> int:
    """Returns 0 if the database needs no migration after upgrading an empty database to head."""
    for command in (["upgrade", "head"], ["check"]):
        done = subprocess.run([sys.executable, "-m", "alembic", "-x", f"url={url}", *command], cwd=ROOT, check=False)
        if done.returncode:
            return done.returncode
    return 0


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        status = check(f"sqlite:///{folder}/check.db")
    with servers.postgres() as url:
        server = make_url(url)
        name = f"edgefront_check_{uuid.uuid4().hex[:12]}"
        conninfo = server.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
            try:
                status |= check(server.set(database=name).render_as_string(hide_password=False))
            finally:
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
    return status


if __name__ == "__main__":
    sys.exit(main())
