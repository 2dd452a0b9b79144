"""`python -m edgefront.api.setup FOLDER`: prepares a team's server before its API and workers start. Idempotent.

Migrates the database of the settings. Then the folder contains, readable by this user only:

    admin-key         an API key of the role admin; kept for as long as the database knows it
    enrolment-token   for agents on the same host; a new one each time; in another folder, if one is given, so that an
                      agent in a container of its own reads no admin key

Everything else is created with the admin key: `edgefront key create`, `edgefront token create`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sqlalchemy.orm import Session

from edgefront.core.common.errors import Unauthenticated
from edgefront.core.common.files import write_private
from edgefront.core.common.processes.program import run_program
from edgefront.core.common.states import KeyRole
from edgefront.core.schemas.service import EnrolmentTokenRequest
from edgefront.core.services.access.keys import Principal, authenticate, create_key
from edgefront.core.services.fleet.devices import create_enrolment_token
from edgefront.core.services.settings import Settings
from edgefront.core.store.database import Database

TOKEN_MINUTES = 24 * 60
TOKEN_USES = 8


def set_up(database: Database, folder: Path, token_folder: Path | None = None) -> None:
    """Prepares the server as described in the module. Raises `Unavailable` if the database is unavailable, OSError if
    the folder cannot be written.
    """
    database.migrate()
    token_folder = token_folder or folder
    for private in (folder, token_folder):
        private.mkdir(parents=True, exist_ok=True, mode=0o700)
    with database.write() as session:
        principal = _admin(session, database, folder / "admin-key")
        request = EnrolmentTokenRequest(name="agents beside the server", minutes=TOKEN_MINUTES, uses=TOKEN_USES)
        _, token = create_enrolment_token(session, principal, request, database.now(session))
        write_private(token_folder / "enrolment-token", f"{token}\n")


def _admin(session: Session, database: Database, path: Path) -> Principal:
    now = database.now(session)
    if path.exists():
        try:
            return authenticate(session, path.read_text().strip(), now)
        except (Unauthenticated, UnicodeDecodeError):
            pass  # the key is for another database, or revoked
    _, secret = create_key(session, name="setup", owner="admin", role=KeyRole.ADMIN, now=now)
    write_private(path, f"{secret}\n")
    return authenticate(session, secret, now)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m edgefront.api.setup", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the admin key and the enrolment token are put")
    parser.add_argument("--token-folder", type=Path, help="where the enrolment token is put instead")
    given = parser.parse_args()
    database = Database(Settings().database_url, pool_size=1)
    try:
        set_up(database, given.folder, given.token_folder)
    finally:
        database.dispose()
    sys.stdout.write(f"ready: the admin key is in {given.folder / 'admin-key'}\n")


if __name__ == "__main__":
    run_program(lambda: main)
