"""The device's credential: received once for an enrolment token, and stored in a file readable only by its owner."""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from edgefront.agents.device.probe import as_name, default_class
from edgefront.agents.options import AgentOptions
from edgefront.agents.server.client import FOREVER, AgentClient
from edgefront.core.common.errors import Conflict, EdgefrontError, Gone, InvalidInput, Unauthenticated
from edgefront.core.common.files import write_private
from edgefront.core.schemas.agent import INSTANCE, DeviceFacts, EnrolRequest

_log = logging.getLogger(__name__)

STANDARD_INPUT = Path("-")
_NONCE = re.compile(r"[A-Za-z0-9_-]{43}")


class Credential(BaseModel):
    """A device's credential for one server."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    server: str
    device_id: str
    name: str
    credential: str


class CredentialFile:
    """The file `credential.json` in the agent's data folder, mode 0600."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "credential.json"
        self._nonce = folder / "enrolment-nonce"
        self._refused = folder / "refused-instance"

    def read(self, server: str) -> Credential | None:
        """Returns the stored credential; None if no credential is stored or it is for another server."""
        try:
            credential = Credential.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            _log.error("the credential %s cannot be used: %s", self.path, error)
            return None
        if credential.server != server:
            _log.warning("the credential %s is for %s, not for %s", self.path, credential.server, server)
            return None
        return credential

    def write(self, credential: Credential) -> None:
        """Stores the credential atomically, unreadable for other users, and removes the nonce of the enrolment."""
        write_private(self.path, json.dumps(credential.model_dump()))
        self._nonce.unlink(missing_ok=True)

    def refused_instance(self) -> str | None:
        """Instance name of the previous agent with this folder, if the server refused it because another instance was
        running. The next agent reuses the name, so that the server refuses the next agent too while the other instance
        runs.
        """
        with suppress(OSError, UnicodeDecodeError):
            kept = self._refused.read_text(encoding="ascii")
            if INSTANCE.fullmatch(kept):
                return kept
        return None

    def refused(self, instance: str) -> None:
        write_private(self._refused, instance)

    def accepted(self) -> None:
        self._refused.unlink(missing_ok=True)

    def nonce(self) -> str:
        """Returns a random text that identifies the enrolment until a credential is stored, so that an agent can repeat
        the same enrolment request after it was killed.
        """
        with suppress(OSError, UnicodeDecodeError):
            kept = self._nonce.read_text(encoding="ascii")
            if _NONCE.fullmatch(kept):
                return kept
        made = secrets.token_urlsafe(32)
        write_private(self._nonce, made)
        return made


async def enrol(client: AgentClient, options: AgentOptions, facts: DeviceFacts) -> Credential:
    """Exchanges the enrolment token for a credential and stores the credential. Waits while the server is unavailable.
    Raises `InvalidInput` without a usable token file, and the server's errors about the token.
    """
    token = read_token(options.token_file)
    file = CredentialFile(options.folder)
    request = EnrolRequest(
        name=as_name(options.name or facts.hostname),
        device_class=as_name(options.device_class) if options.device_class else default_class(facts),
        facts=facts,
        nonce=file.nonce(),
    )
    answer = await FOREVER.run("enrolling", lambda: client.enrol(token, request))
    credential = Credential(
        server=client.server,
        device_id=answer.device_id,
        name=request.name,
        credential=answer.credential,
    )
    file.write(credential)
    _log.info("enrolled as %s (class %s)", request.name, request.device_class)
    return credential


async def enrol_again(client: AgentClient, options: AgentOptions, facts: DeviceFacts, refusal: EdgefrontError) -> None:
    """Enrols again with the token file after the server has refused the credential.

    Raises `refusal` if there is no token or, for a revoked device, no valid token; otherwise the server's error about
    the token.
    """
    if options.token_file is None:
        raise refusal
    _log.warning("the server does not accept this device's credential (%s); enrolling again", refusal)
    try:
        credential = await enrol(client, options, facts)
    except (Unauthenticated, Conflict, InvalidInput):
        if isinstance(refusal, Gone):
            raise refusal from None
        raise
    client.use(credential.credential)


def read_token(path: Path | None) -> str:
    """Reads the enrolment token from a file or, for `-`, standard input. Raises `InvalidInput` without a token."""
    if path is None:
        raise InvalidInput(
            "this device is not enrolled yet: give an enrolment token by --token-file",
            field="token_file",
            allowed="a file with a token from `POST /v1/enrolment-tokens`",
        )
    try:
        token = (sys.stdin.readline() if path == STANDARD_INPUT else path.read_text(encoding="utf-8-sig")).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the token file {path} cannot be read: {error}", field="token_file") from None
    if not token or len(token) > 200 or not token.isascii() or any(character.isspace() for character in token):
        raise InvalidInput(
            f"the token file {path} contains no enrolment token", field="token_file", allowed="one line: efe_…"
        )
    return token
