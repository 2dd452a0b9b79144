"""`edgefront token …` and `edgefront key …`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgefront.commands.base import Session, command, group
from edgefront.commands.options import KeyId, TokenId

if TYPE_CHECKING:
    from edgefront.core.wire.service import EnrolmentTokenView

tokens = group("Enrolment tokens: each allows new devices to enrol.")
keys = group("API keys.")


@command(tokens, "create")
def create_token(
    session: Session,
    name: Annotated[str, typer.Option(help="Name of the token.")] = "device",
    minutes: Annotated[int, typer.Option(min=1, help="Minutes until the token expires.")] = 60,
    uses: Annotated[int, typer.Option(min=1, help="Number of devices that may enrol with it.")] = 1,
) -> None:
    """Create an enrolment token, and print the command that starts an agent with it on the device."""
    show_token(session, session.client.tokens.create(name=name, minutes=minutes, uses=uses))


def show_token(session: Session, token: EnrolmentTokenView, name: str | None = None) -> None:
    """A token's secret, which is in no later answer; `name` is that of the one device that it is for."""

    def show() -> None:
        session.say(token.token)
        address = session.client.tokens.address()
        session.note(f"shown only once. On the device: {agent_command(address.url, token.token or '', name)}")
        if address.note:
            session.note(address.note)

    session.put(token, show)


def agent_command(url: str, token: str, name: str | None) -> str:
    """The one command that enrols a device and starts its agent, in any shell. The page writes it alike."""
    from shlex import quote
    from urllib.parse import urlsplit

    from edgefront.core.addresses import is_loopback

    parts = urlsplit(url)
    insecure = " --insecure" if parts.scheme == "http" and not is_loopback(parts.hostname or "") else ""
    named = "" if name is None else f" --name {quote(name)}"
    return f"echo {token} | edgefront agent --server {quote(url)} --token-file -{named}{insecure}"


@command(tokens, "list")
def list_tokens(session: Session) -> None:
    """List the enrolment tokens."""
    from edgefront.show.output import moment, table

    tokens = session.client.tokens.list()

    def show() -> None:
        shown = table(
            "id", "name", "uses left", "expires", "revoked", right=("uses left",), less=("revoked", "expires")
        )
        for token in tokens:
            shown.add_row(token.id, token.name, str(token.uses_left), moment(token.expires_at), _mark(token.revoked))
        session.out.print(shown)

    session.put(tokens, show)


@command(tokens, "revoke")
def revoke_token(session: Session, token: TokenId) -> None:
    """Revoke an enrolment token. Devices that enrolled with it stay enrolled."""
    session.client.tokens.revoke(token)
    session.put({"revoked": token}, lambda: session.note(f"revoked {token}"))


@command(keys, "create")
def create_key(
    session: Session,
    name: Annotated[str, typer.Argument(help="Name of the key: a person or a purpose.")],
    role: Annotated[
        Literal["admin", "user", "viewer"],
        typer.Option(help="admin: everything; user: its owner's jobs; viewer: read all."),
    ] = "user",
    owner: Annotated[str | None, typer.Option(help="Owner whose jobs the key can access. Default: its name.")] = None,
    days: Annotated[int | None, typer.Option(min=1, help="Days until the key expires. Default: never.")] = None,
) -> None:
    """Create an API key."""
    key = session.client.keys.create(name, role=role, owner=owner, days=days)

    def show() -> None:
        session.say(key.key)
        session.note("shown only once")

    session.put(key, show)


@command(keys, "list")
def list_keys(session: Session) -> None:
    """List the API keys."""
    from edgefront.show.output import moment, table

    keys = session.client.keys.list()

    def show() -> None:
        shown = table(
            *("id", "name", "owner", "role", "begins with", "created", "expires", "revoked"),
            less=("begins with", "created", "owner", "expires"),
        )
        for key in keys:
            shown.add_row(
                key.id,
                key.name,
                key.owner,
                key.role,
                key.prefix,
                moment(key.created_at),
                moment(key.expires_at),
                _mark(key.revoked),
            )
        session.out.print(shown)

    session.put(keys, show)


@command(keys, "revoke")
def revoke_key(
    session: Session,
    key_id: KeyId,
    force: Annotated[bool, typer.Option("--force", help="Even if it is the last admin key.")] = False,
) -> None:
    """Revoke an API key. It ends everywhere within one second."""
    session.client.keys.revoke(key_id, force=force)
    session.put({"revoked": key_id}, lambda: session.note(f"revoked {key_id}"))


def _mark(yes: bool) -> str:
    return "yes" if yes else ""
