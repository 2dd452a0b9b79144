"""`edgefront quality …`: laws that predict perplexity from an architecture. Only refined laws need a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefront.commands.base import Session, command, group
from edgefront.commands.completion import complete_law
from edgefront.commands.options import Described, Force

if TYPE_CHECKING:
    from edgefront.core.quality.law import QualityLaw
    from edgefront.core.spaces.architecture import Architecture

app = group("Quality laws: predict a model's perplexity, and fit a law to trained models.")

_ABOUT = ("title", "data", "split", "tokens", "trained", "source", "licence")


@command(app, "list")
def list_laws(
    session: Session,
    refined: Annotated[
        bool, typer.Option("--refined", help="Also list the laws that trainings of the server have refined.")
    ] = False,
) -> None:
    """List the quality laws that come with edgefront, and with --refined those of the server."""
    from edgefront.core.quality.shipped import shipped_laws
    from edgefront.core.quality.stored import summary

    laws = [summary(law) for law in shipped_laws().values()]
    if refined:
        laws = [law.model_dump(mode="json") for law in session.client.catalogue.quality_laws()]

    def show() -> None:
        from edgefront.show.output import table

        shown = table(
            *("name", "family", "data", "split", "models", "what it is of"),
            right=("models",),
            prose=("what it is of",),
            less=("split", "what it is of", "family", "models"),
        )
        for of in laws:
            shown.add_row(_reference(of), of["family"], of["data"], of["split"], str(of["table_models"]), of["title"])
        session.out.print(shown)

    session.put(laws, show)


@command(app, "show")
def show_law(
    session: Session,
    law: Annotated[
        str,
        typer.Argument(
            metavar="NAME_OR_FILE",
            help="Name or file of a quality law, or NAME@VERSION of a law of the server.",
            autocompletion=complete_law,
        ),
    ],
) -> None:
    """Show the data, accuracy and feature ranges of a law. With --json the whole law, without its models for laws of
    the server.
    """
    from edgefront.core.quality.shipped import find_law
    from edgefront.core.quality.stored import summary, to_json

    if "@" in law and not Path(law).is_file():
        view = session.client.catalogue.quality_law(law).model_dump(mode="json")
        session.put(view, lambda: _show(session, view))
    else:
        found = find_law(law)
        session.put(to_json(found), lambda: _show(session, summary(found)))


@command(app, "fit", server=False)
def fit_law(
    session: Session,
    file: Annotated[
        Path, typer.Argument(metavar="TABLE", help="Trained models: JSON lines, JSON or CSV, one model per row.")
    ],
    prior: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_FILE",
            help="Law to use as the prior mean, for tables with few models or a part of a family.",
            autocompletion=complete_law,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the law to this JSON file.")] = None,
    quality: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Perplexity, loss or bpc. Default: valid_ppl, perplexity, …")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Use only rows with this value. May be repeated.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the law. Default: the name of the table.")] = None,
    data: Annotated[str, typer.Option(help="Training data of the models, for readers.")] = "not stated",
    split: Annotated[str, typer.Option(help="Split of their perplexity, for readers.")] = "not stated",
    trained: Annotated[str, typer.Option(help="Recipe and length of their training, for readers.")] = "not stated",
    force: Force = False,
) -> None:
    """Fit a law to a table of models that were trained in the same way.

    Prints its accuracy on new models: Spearman's rho and the share of 95 % intervals that hold,
    over ten folds, each architecture in one of them. With a column `tokens`, or after a law of several tables
    (`--prior own-data-llama`), your trainings refine that law, from one on; rows of one model are its learning curve.
    """
    from edgefront.commands.proxy import conditions
    from edgefront.core.files import check_free, whole_file
    from edgefront.core.proxies.law_fit import fit
    from edgefront.core.proxies.table import quality_of, read_table
    from edgefront.core.proxies.table import where as rows_where
    from edgefront.core.proxies.trained import trained_models
    from edgefront.core.quality.law import Origin
    from edgefront.core.quality.shipped import find_law
    from edgefront.core.quality.stored import checked_name, summary, to_text

    if out is not None:
        check_free(out, force=force)
    rows = rows_where(read_table(file), conditions(where or []))
    models = trained_models(rows, quality_of(rows, quality))
    origin = Origin(
        name=_name(file) if name is None else checked_name(name),
        title=f"{len(models.first)} models of {file.name}",
        family=_family(models.architectures),
        data=data,
        split=split,
        trained=trained,
        source=file.name,
    )
    fitted = fit(models, origin, None if prior is None else find_law(prior))
    law, folds = fitted.law, fitted.folds
    note = "; ".join(part for part in (models.note, *fitted.notes) if part)
    if out is not None:
        with whole_file(out) as target:
            target.write(to_text(law).encode())

    def show() -> None:
        _show(session, summary(law))
        if folds is not None:
            rho, tenth = ("–" if value is None else f"{value:.3f}" for value in (folds.spearman, folds.best_tenth))
            session.out.print(
                f"folds by model: Spearman's rho {rho}, over the best tenth {tenth}; error {folds.error:.1%} of "
                f"perplexity; {folds.held:.0%} of the 95 % intervals hold",
                markup=False,
                soft_wrap=True,
            )
        if note:
            session.note(note)
        session.note(f"law: {out}" if out is not None else "the law was not saved: name a file with --out")

    written = None if out is None else str(out)
    session.put({**summary(law), "folds": folds and folds.to_json(), "note": note, "file": written}, show)


@command(app, "predict", server=False)
def predict(
    session: Session,
    architecture: Described,
    law: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_FILE", help="Default: the law of the model's family.", autocompletion=complete_law
        ),
    ] = None,
) -> None:
    """Predict the perplexity of a model, if it is trained like those of the law."""
    from edgefront.core.evaluation.given_model import architecture_of
    from edgefront.core.proxies.quality_law import law_about
    from edgefront.core.quality.law import NOT_STATED
    from edgefront.core.quality.shipped import find_law

    model = architecture_of(architecture)
    found = law_about(model) if law is None else find_law(law)
    result = predicted(found, model)

    def show() -> None:
        session.out.print(sentence(result), markup=False, soft_wrap=True)
        how = found.origin.trained
        trained = "" if how == NOT_STATED else f"; trained {how}"
        session.note(f"{found.origin.name}: {found.origin.title}{trained}")

    session.put({"digest": model.digest, **result}, show)


def predicted(law: QualityLaw, architecture: Architecture) -> dict[str, Any]:
    """A prediction as JSON, with what it is of."""
    from edgefront.core.cost.shapes import Shapes

    shapes = Shapes.of([architecture])
    found = law.predict(shapes)
    return {
        "law": law.origin.name,
        "perplexity": float(found.perplexity[0]),
        "low": float(found.low[0]),
        "high": float(found.high[0]),
        "extrapolated": bool(found.extrapolated[0]),
        "beyond": list(law.beyond(shapes)[0]),
        "data": law.origin.data,
        "split": law.origin.split,
        "tokens": law.origin.tokens,
        "trained": law.origin.trained,
    }


def sentence(value: dict[str, Any]) -> str:
    """A prediction for people."""
    from edgefront.core.quality.law import NOT_STATED

    text = f"perplexity {value['perplexity']:.4g} (95 %: {value['low']:.4g} to {value['high']:.4g})"
    words = {"data": "on ", "split": "", "tokens": "per "}
    stated = [begin + value[name] for name, begin in words.items() if value[name] != NOT_STATED]
    text += f" {', '.join(stated)}" if stated else "; the law does not state on which data"
    return text + (f"; extrapolated in {', '.join(value['beyond'])}" if value["extrapolated"] else "")


def _show(session: Session, law: dict[str, Any]) -> None:
    """A law's summary, or the server's view of one."""
    from edgefront.core.quality.law import NOT_STATED
    from edgefront.show.output import table

    session.out.print(f"{_reference(law)}: {law['title']}", markup=False, soft_wrap=True)
    unstated = [name for name in _ABOUT[1:] if law[name] == NOT_STATED]
    for name in _ABOUT[1:]:
        if name not in unstated:
            session.out.print(f"  {name}: {law[name]}", markup=False, soft_wrap=True)
    if unstated:
        session.out.print(f"  The law does not state its {', '.join(unstated)}.", markup=False, soft_wrap=True)
    blocks = ", ".join(sorted(law["blocks"]))
    session.out.print(f"  models: {law['table_models']}, of {blocks}", markup=False, soft_wrap=True)
    if law["prior"] is not None:
        session.out.print(f"  prior: {law['prior']}", markup=False, soft_wrap=True)
    shown = table(
        "feature", "from", "to", "unit", "of", right=("from", "to"), prose=("unit", "of"), less=("of", "unit")
    )
    for row in law["features"]:
        shown.add_row(row["name"], *_range(row), row["unit"].removeprefix("ln of "), row["meaning"])
    session.out.print(shown)


def _reference(law: dict[str, Any]) -> str:
    return f"{law['name']}@{law['version']}" if law.get("version") else str(law["name"])


def _range(row: dict[str, Any]) -> tuple[str, str]:
    """Of a feature in its plain unit."""
    from math import exp

    low, high = row["low"], row["high"]
    if not row["unit"].startswith("ln of "):
        return f"{low:.2f}", f"{high:.2f}"
    return f"{exp(low):,.3g}", f"{exp(high):,.3g}"


def _family(architectures: tuple[Architecture, ...]) -> str:
    """That of all models; none if they are of several."""
    from edgefront.core.quality.shipped import family

    found = {family(architecture) or "" for architecture in architectures}
    return found.pop() if len(found) == 1 else ""


def _name(file: Path) -> str:
    import re

    return re.sub(r"[^a-z0-9.-]+", "-", file.name.lower().split(".")[0]).strip("-.")[:64] or "law"
