"""`edgefront owner …`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edgefront.commands.base import Session, command, group

if TYPE_CHECKING:
    from edgefront.core.wire.owners import BoundView, OwnerView

app = group("Owners: what each may have at once, and how often its turn comes.")
BOUNDS = ("running_jobs", "waiting_launches", "trainings", "stored_bytes")
Owner = Annotated[str, typer.Argument(metavar="OWNER", help="Name of the owner.")]


@command(app, "list")
def list_owners(session: Session) -> None:
    """List the owners with their bounds, and what they use of them."""
    from edgefront.show.output import table

    owners = list(session.client.owners.list())

    def show() -> None:
        columns = [name.replace("_", " ") for name in BOUNDS]
        shown = table("owner", "weight", *columns, right=("weight", *columns))
        for owner in owners:
            shown.add_row(owner.owner, f"{owner.weight:g}", *(_bound(name, getattr(owner, name)) for name in BOUNDS))
        session.out.print(shown)

    session.put(owners, show)


@command(app, "show")
def show_owner(session: Session, owner: Owner) -> None:
    """Show an owner's bounds, what it uses of them, and what admins have changed."""
    _put(session, session.client.owners.get(owner))


@command(app, "set")
def set_bounds(
    session: Session,
    owner: Owner,
    weight: Annotated[
        float | None, typer.Option(min=0.01, max=100, help="How often its turn comes; others have 1.")
    ] = None,
    running_jobs: Annotated[int | None, typer.Option(min=1, help="Running and paused jobs.")] = None,
    waiting_launches: Annotated[int | None, typer.Option(min=1, help="Launches that wait for devices.")] = None,
    trainings: Annotated[int | None, typer.Option(min=1, help="Trainings that have not ended.")] = None,
    stored_mib: Annotated[int | None, typer.Option(min=1, help="MiB of the files of its trainings.")] = None,
) -> None:
    """Set bounds of an owner; those that are not named stay as they are."""
    from edgefront.core.units import MIB

    given = {
        "weight": weight,
        "running_jobs": running_jobs,
        "waiting_launches": waiting_launches,
        "trainings": trainings,
        "stored_bytes": None if stored_mib is None else stored_mib * MIB,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    if not chosen:
        raise typer.BadParameter(
            "name a bound: --weight, --running-jobs, --waiting-launches, --trainings, --stored-mib"
        )
    _put(session, session.client.owners.set(owner, **chosen))


@command(app, "reset")
def reset_bounds(session: Session, owner: Owner) -> None:
    """Go back to the settings of the service for an owner."""
    _put(session, session.client.owners.set(owner, **dict.fromkeys(("weight", *BOUNDS))))


def _put(session: Session, owner: OwnerView) -> None:
    from edgefront.show.output import moment, table

    def show() -> None:
        shown = table("bound", "used", "at most", "set", title=f"{owner.owner}, weight {owner.weight:g}")
        for name in BOUNDS:
            bound: BoundView = getattr(owner, name)
            by = "for this owner" if bound.set_for_owner else "for all"
            shown.add_row(name.replace("_", " "), _count(name, bound.used), _count(name, bound.most), by)
        session.out.print(shown)
        for change in owner.changes:
            values = {name: getattr(change, name) for name in ("weight", *BOUNDS)}
            text = ", ".join(f"{name} {value:g}" for name, value in values.items() if value is not None)
            session.out.print(f"{moment(change.set_at)}  {change.set_by}: {text or 'back to the settings'}")

    session.put(owner, show)


def _bound(name: str, bound: BoundView) -> str:
    used = "" if bound.used is None else f"{_count(name, bound.used)} of "
    return used + _count(name, bound.most)


def _count(name: str, count: int | None) -> str:
    from edgefront.core.units import MIB

    if count is None:
        return "unbounded"
    return f"{count / MIB:,.0f} MiB" if name == "stored_bytes" else f"{count:,}"
