"""`edgefront space …` and `edgefront describe`: what needs no server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefront.commands.base import Session, command, group
from edgefront.commands.completion import complete_model, complete_space

if TYPE_CHECKING:
    from core.spaces.space import SearchSpace

spaces = group("Search spaces.")

_DESCRIBED = (
    "digest",
    "decoder_parameters",
    "position_parameters",
    "embedding_parameters",
    "total_parameters",
    "flops",
    "weight_bytes",
)
_OPTIONS = ("sequence_length", "batch", "dtype")


def add_to(app: typer.Typer) -> None:
    command(app, "describe", server=False)(describe)


def describe(
    session: Session,
    architecture: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_NAME", help="An architecture as JSON, or a named model.", autocompletion=complete_model
        ),
    ],
    sequence_length: Annotated[int, typer.Option(min=1, help="Tokens of the forward pass that FLOPs are for.")] = 192,
    batch: Annotated[int, typer.Option(min=1, help="Sequences in it.")] = 1,
    dtype: Annotated[str, typer.Option(help="Of the weights, for their bytes.")] = "float32",
) -> None:
    """Show what an architecture costs, exactly and without running it. Needs no server."""
    from core.cost.costs import costs
    from core.spaces.catalogue import resolve

    found = costs(resolve(architecture), sequence_length=sequence_length, batch=batch, dtype=dtype)
    result: dict[str, Any] = {name: getattr(found, name) for name in (*_DESCRIBED, *_OPTIONS)}

    def show() -> None:
        from edgefront.output import table

        shown = table("cost", "value", right=("value",))
        for name in _DESCRIBED:
            value = result[name]
            shown.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
        session.out.print(shown)
        session.note(f"sequence length {sequence_length}, batch {batch}, {dtype}")

    session.put(result, show)


@command(spaces, "list", server=False)
def list_spaces(session: Session) -> None:
    """List the search spaces. Needs no server."""
    from core.spaces import catalogue

    found = list(catalogue.spaces().values())

    def show() -> None:
        from edgefront.output import table

        shown = table("name", "architectures", "title", "source", right=("architectures",))
        for space in found:
            shown.add_row(space.name, f"{float(space.size()):.2g}", space.title, space.source)
        session.out.print(shown)

    session.put([_view(space) for space in found], show)


@command(spaces, "show", server=False)
def show_space(
    session: Session,
    space: Annotated[str, typer.Argument(help="Name of the space.", autocompletion=complete_space)],
    narrow: Annotated[
        list[str] | None, typer.Option(metavar="GENE=VALUES", help="As narrowed by these: n_layer=2..6.")
    ] = None,
) -> None:
    """Show a search space, and what is left of it after narrowing. Needs no server."""
    from core.spaces import catalogue
    from edgefront.submission import narrowing

    found = catalogue.space(space).narrow(narrowing(narrow or []))

    def show() -> None:
        from edgefront.output import table

        shown = table("gene", "values", "per layer", title=f"{found.name}: {found.title}")
        for gene, described in found.genes().items():
            shown.add_row(gene, _values(described), "yes" if described.get("per_layer") else "")
        session.out.print(shown)
        session.out.print(f"{float(found.size()):.3g} architectures · {found.source}", markup=False)

    session.put(_view(found), show)


def _view(space: SearchSpace) -> dict[str, Any]:
    return {
        "name": space.name,
        "title": space.title,
        "source": space.source,
        "genes": space.genes(),
        "size": str(space.size()),
    }


def _values(described: dict[str, Any]) -> str:
    if "values" in described:
        return ", ".join(str(value) for value in described["values"])
    step = described.get("step", 1)
    return f"{described['min']}..{described['max']}" + (f" in steps of {step}" if step != 1 else "")
