"""`edgefront quality …`: scaling laws, which predict perplexity. Only laws refined by trainings need a server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefront.cli.commands.options import Force, ModelArgument
from edgefront.cli.session import Session, command, group
from edgefront.client.show.table import Table
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.files import check_free, whole_file
from edgefront.core.common.units import parse_token_count

if TYPE_CHECKING:
    from edgefront.core.architectures.architecture import Architecture
    from edgefront.core.quality.predictor import PerplexityPredictor

app = group("Scaling laws: predict a model's perplexity, and fit a law to trained models.")

TrainedOn = Annotated[
    str | None,
    typer.Option(
        metavar="TOKENS",
        help="Tokens that the model is trained on, for laws that know the training budget: 300M, 10B, 1e9.",
    ),
]
_ORIGIN_FIELDS = ("data", "split", "tokens", "trained", "source", "licence")


@command(app, "list")
def list_laws(
    session: Session,
    refined: Annotated[
        bool, typer.Option("--refined", help="Also list the laws that your trainings on the server have refined.")
    ] = False,
) -> None:
    """List the scaling laws that come with edgefront, and with --refined those of the server."""
    from edgefront.core.quality.shipped import shipped_laws
    from edgefront.core.quality.stored import summary

    laws = [summary(law) for law in shipped_laws().values()]
    if refined:
        laws = [law.model_dump(mode="json") for law in session.client.catalogue.quality_laws()]

    table = Table(
        *("name", "family", "predicts", "data", "split", "models", "what it is of"),
        right=("models",),
        wrap=("what it is of",),
        drop_first=("split", "what it is of", "family", "models", "data"),
    )
    for law in laws:
        predicts = "perplexity" if law["relative_to"] is None else "ratios"
        predicts = predicts if law["train_tokens"] is None else f"{predicts} by tokens"
        models = str(law["table_models"])
        table.add_row(law["name"], law["family"], predicts, law["data"], law["split"], models, law["title"])
    session.put(laws, table)


@command(app, "show")
def show_law(
    session: Session,
    law: Annotated[
        str,
        typer.Argument(
            metavar="NAME_OR_FILE",
            help="Name or file of a scaling law, or name of one that your trainings on the server have refined.",
        ),
    ],
) -> None:
    """Show the data, accuracy and feature ranges of a scaling law. With --json the whole law; for a law of the server
    without its models.
    """
    from edgefront.core.quality.shipped import NAMES, find_law
    from edgefront.core.quality.stored import summary, to_json

    if law not in NAMES and not Path(law).is_file() and Path(law).suffix != ".json":
        view = session.client.catalogue.quality_law(law).model_dump(mode="json")
        session.put(view, lambda: _show(session, view))
    else:
        local = find_law(law)
        session.put(to_json(local), lambda: _show(session, summary(local)))


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
    """Fit a scaling law to a table of models that were trained in the same way.

    Prints its accuracy on new models from tenfold cross-validation by architecture: Spearman's rho and the share of
    95 % intervals that hold. With a column `tokens`, or a prior learnt from several tables (`--prior own-data-llama`),
    the table refines the prior, even with one row; rows of one model are its learning curve.
    """
    from edgefront.core.quality.predictor import Origin
    from edgefront.core.quality.shipped import family, find_scaling_law
    from edgefront.core.quality.stored import checked_name, summary, to_text
    from edgefront.core.training.proxies.law_study import fit
    from edgefront.core.training.proxies.table import quality_of, read_table
    from edgefront.core.training.proxies.table import where as rows_where
    from edgefront.core.training.proxies.trained import trained_models

    if out is not None:
        check_free(out, force=force)
    rows = rows_where(read_table(file), conditions(where or []))
    models = trained_models(rows, quality_of(rows, quality))
    families = {family(architecture) or "" for architecture in models.architectures}
    file_name = re.sub(r"[^a-z0-9.-]+", "-", file.name.lower().split(".")[0]).strip("-.")[:64]
    origin = Origin(
        name=file_name or "law" if name is None else checked_name(name),
        title=f"{len(models.first)} models of {file.name}",
        family=families.pop() if len(families) == 1 else "",
        data=data,
        split=split,
        trained=trained,
        source=file.name,
    )
    fitted = fit(models, origin, None if prior is None else find_scaling_law(prior, "prior"))
    law, folds = fitted.law, fitted.folds
    note = "; ".join(part for part in (models.note, *fitted.notes) if part)
    if out is not None:
        with whole_file(out) as target:
            target.write(to_text(law).encode())

    def show() -> None:
        _show(session, summary(law))
        if folds is not None:
            rho, tenth = ("–" if value is None else f"{value:.3f}" for value in (folds.spearman, folds.best_tenth))
            session.say(
                f"folds by model: Spearman's rho {rho}, over the best tenth {tenth}; error {folds.error:.1%} of "
                f"perplexity; {folds.held:.0%} of the 95 % intervals hold"
            )
        if note:
            session.note(note)
        session.note(f"law: {out}" if out is not None else "the law was not saved: name a file with --out")

    written = None if out is None else str(out)
    session.put({**summary(law), "folds": folds and asdict(folds), "note": note, "file": written}, show)


@command(app, "predict", server=False)
def predict(
    session: Session,
    architecture: ModelArgument,
    law: Annotated[
        str | None,
        typer.Option(metavar="NAME_OR_FILE", help="Default: the law of the model's family."),
    ] = None,
    tokens: TrainedOn = None,
) -> None:
    """Predict a model's perplexity after the training that the scaling law describes. Laws about your own data predict
    the ratio to a named model's perplexity.
    """
    from edgefront.client.show.frontier_table import label_line
    from edgefront.core.quality.shipped import find_law
    from edgefront.core.training.evaluation.given_model import architecture_of
    from edgefront.core.training.proxies.score import law_about

    model = architecture_of(architecture)
    predictor = at_budget(law_about(model) if law is None else find_law(law), tokens)
    result = predicted(predictor, model)

    def show() -> None:
        session.say(sentence(result))
        session.say(label_line(result["label"]))
        session.note(f"{predictor.origin.name}: {predictor.origin.title}; {trained_in_words(result)}")

    session.put({"digest": model.digest, **result}, show)


def conditions(options: Sequence[str]) -> dict[str, str]:
    """Parses options `--where COLUMN=VALUE` into a mapping from columns to required values."""
    values = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidInput(
                f"--where {text}: the value is missing", field="where", value=text, allowed="COLUMN=VALUE"
            )
        values[name] = value
    return values


def at_budget(law: PerplexityPredictor, tokens: str | None) -> PerplexityPredictor:
    """Returns the scaling law at the training budget `--tokens`. Raises `InvalidInput` if its budget is fixed."""
    if tokens is None:
        return law
    count = parse_token_count(tokens, "tokens")
    try:
        return law.at_tokens(float(count))
    except InvalidInput as error:
        text = f"--tokens{str(error).removeprefix('train_tokens')}"
        raise InvalidInput(text, field="tokens", value=count, allowed=error.allowed) from None


def predicted(law: PerplexityPredictor, architecture: Architecture) -> dict[str, Any]:
    """Returns a JSON object with the predicted perplexity, and the data and training that the prediction assumes."""
    from edgefront.core.architectures.cost.shapes import Shapes
    from edgefront.core.quality.pruning_predictor import PruningPredictor

    if isinstance(law, PruningPredictor):
        law.table.align_part(architecture)
    shapes = Shapes.of([architecture])
    prediction = law.predict(shapes)
    return {
        "law": law.origin.name,
        "perplexity": float(prediction.perplexity[0]),
        "low": float(prediction.low[0]),
        "high": float(prediction.high[0]),
        "extrapolated": bool(prediction.extrapolated[0]),
        "beyond": list(law.beyond(shapes)[0]),
        "data": law.origin.data,
        "split": law.origin.split,
        "tokens": law.origin.tokens,
        "trained": law.origin.trained,
        "train_tokens": law.train_tokens,
        "relative_to": law.relative_to,
        "label": law.label,
        "about": law.about,
    }


def sentence(value: dict[str, Any]) -> str:
    """Returns a prediction (from `predicted`) as text: `perplexity 31.2 (95 %: 30.1 to 32.4) on Dolma, …`, or `0.83 ×
    smollm2-135m's perplexity (0.72 to 0.95), on your own data`.
    """
    from edgefront.core.quality.predictor import NOT_STATED

    beyond = f"; extrapolated in {', '.join(value['beyond'])}" if value["extrapolated"] else ""
    if value["relative_to"] is not None:
        interval = f"({value['low']:.2f} to {value['high']:.2f})"
        return f"{value['perplexity']:.2f} × {value['relative_to']}'s perplexity {interval}, on {value['data']}{beyond}"
    text = f"perplexity {value['perplexity']:.4g} (95 %: {value['low']:.4g} to {value['high']:.4g})"
    prefixes = {"data": "on ", "split": "", "tokens": "per "}
    stated = [prefix + value[name] for name, prefix in prefixes.items() if value[name] != NOT_STATED]
    text += f" {', '.join(stated)}" if stated else "; the law does not state on which data"
    return text + beyond


def trained_in_words(value: dict[str, Any]) -> str:
    """Returns a text about the training that a prediction (from `predicted`) assumes, with its tokens if known."""
    from edgefront.core.quality.predictor import NOT_STATED, in_words

    how = "both trained alike" if value["relative_to"] is not None else f"trained {value['trained']}"
    if value["relative_to"] is None and value["trained"] == NOT_STATED:
        how = "how they are trained is not stated"
    return how if value["train_tokens"] is None else f"{how} on {in_words(value['train_tokens'])} tokens"


def _show(session: Session, law: dict[str, Any]) -> None:
    """Prints the summary of a scaling law, given as JSON from a file or from the server."""
    from edgefront.core.quality.predictor import NOT_STATED, in_words

    session.say(f"{law['name']}: {law['title']}")
    unstated = [name for name in _ORIGIN_FIELDS if law[name] == NOT_STATED]
    for name in _ORIGIN_FIELDS:
        if name not in unstated:
            session.say(f"  {name}: {law[name]}")
    if unstated:
        session.say(f"  The law does not state its {', '.join(unstated)}.")
    blocks = ", ".join(sorted(law["blocks"]))
    session.say(f"  models: {law['table_models']}, of {blocks}")
    if law["relative_to"] is not None:
        session.say(f"  predicts: perplexity by that of {law['relative_to']}")
    if law["train_tokens"] is not None:
        budget = f"{in_words(law['train_tokens'])} unless others are asked for"
        if law["min_train_tokens"] is not None and law["max_train_tokens"] is not None:
            budget += f"; learnt from {in_words(law['min_train_tokens'])} to {in_words(law['max_train_tokens'])}"
        session.say(f"  training tokens: {budget}")
    if law["prior"] is not None:
        session.say(f"  prior: {law['prior']}")
    table = Table(
        "feature", "from", "to", "unit", "of", right=("from", "to"), wrap=("unit", "of"), drop_first=("of", "unit")
    )
    for row in law["features"]:
        limits = [f"{row[end]:.2f}" for end in ("low", "high")]
        if row["unit"].startswith("ln of "):
            limits = [f"{exp(row[end]):,.3g}" for end in ("low", "high")]
        table.add_row(row["name"], *limits, row["unit"].removeprefix("ln of "), row["meaning"])
    session.out.print(table)
