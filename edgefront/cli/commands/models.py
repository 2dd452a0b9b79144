"""`edgefront model …`: shows, builds, downloads and imports models."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefront.cli.commands.inherit import note_dequantised
from edgefront.cli.commands.options import (
    MODEL_HELP,
    CandidateId,
    FileFormat,
    Force,
    Licence,
    ModelArgument,
    Numbers,
)
from edgefront.cli.session import Session, command, group
from edgefront.client.show.output import NONE, millions
from edgefront.client.show.table import Table
from edgefront.core.common.files import check_free
from edgefront.core.model_files.model_file import as_folder, bytes_at, check_format, file_name, write_model

if TYPE_CHECKING:
    from edgefront.core.architectures.architecture import Architecture

app = group("Models: download candidates of a search; list, show, import and build named models and your own.")

Output = Annotated[Path, typer.Option("--output", "-o", help="File or folder to write to.")]


@command(app, "download")
def download(
    session: Session,
    candidate: CandidateId,
    kind: FileFormat = "onnx",
    numbers: Numbers = "float32",
    output: Output = Path("."),
    force: Force = False,
) -> None:
    """Download a model (untrained weights, generated from the candidate's seed). Resumes an interrupted download."""
    with as_folder(output, kind, force=force) as target, session.progress(in_bytes=True) as update:
        downloaded = session.client.models.download(
            candidate, kind, target, numbers=numbers, replace=force, progress=partial(update, kind)
        )
    path = output if target != output else downloaded
    result = {
        "candidate": candidate,
        "format": kind,
        "numbers": numbers,
        "path": str(path),
        "bytes": bytes_at(path),
    }
    session.put(result, lambda: session.say(str(path)))


@command(app, "build", server=False)
def build(
    session: Session,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help=MODEL_HELP,
        ),
    ],
    kind: FileFormat = "onnx",
    numbers: Numbers = "float32",
    output: Output = Path("."),
    seed: Annotated[int, typer.Option(min=0, max=(1 << 63) - 1, help="Seed of the random weights.")] = 0,
    force: Force = False,
) -> None:
    """Write a model to a file, with its trained weights or with untrained ones from a seed. Needs no server."""
    from edgefront.core.training.evaluation.given_model import architecture_of, has_weights, package_of

    trained = session.resources.enter_context(package_of(model)) if has_weights(model) else None
    architecture = architecture_of(model) if trained is None else trained.architecture
    check_format(architecture, kind, numbers)
    files = trained.hugging_face_files() if trained is not None and kind in ("transformers", "gguf") else None
    from_seed = seed if trained is None else None
    with as_folder(output, kind, force=force) as target:
        name = file_name(architecture.digest, from_seed, kind, numbers)
        file = target / name if target.is_dir() else target
        check_free(file, force=force)
        with session.err.status(f"building {file.name} …"):
            write_model(architecture, kind, seed if trained is None else trained.weights, file, numbers, files)
    path = output if target != output else file
    weights = "none" if kind == "architecture" else "untrained-random" if trained is None else "trained"
    result = {
        "digest": architecture.digest,
        "format": kind,
        "numbers": numbers,
        "seed": from_seed,
        "weights": weights,
        "path": str(path),
        "bytes": bytes_at(path),
    }
    if weights == "untrained-random":
        session.note(f"untrained: the weights are random numbers from seed {seed}")
    session.put(result, lambda: session.say(str(path)))


@command(app, "card", server=False)
def card(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a trained model.")],
    name: Annotated[str | None, typer.Option(help="Name of the model.")] = None,
    licence: Licence = None,
) -> None:
    """Rewrite the model card of a trained model's folder. Needs no server."""
    from edgefront.core.training.evaluation.model_card import check_licence
    from edgefront.core.training.evaluation.package import CARD, describe

    changes = {"name": name, "licence": None if licence is None else check_licence(licence)}
    package = describe(folder, **{field: value for field, value in changes.items() if value is not None})
    path = package.folder / CARD
    result = {"path": str(path), "licence": package.facts.get("licence")}
    session.put(result, lambda: session.say(str(path)))


@command(app, "show", server=False)
def show_model(session: Session, model: ModelArgument) -> None:
    """Show a model's description in its canonical form. Needs no server."""
    from edgefront.core.training.evaluation.given_model import architecture_of, named_as

    named = named_as(model)
    architecture = named.architecture if named else architecture_of(model)
    result = {
        "name": named.name if named else None,
        "source": named.source if named else None,
        "digest": architecture.digest,
        "architecture": architecture.canonical,
    }
    origin = (named.name, named.source) if named else ()
    session.put(result, lambda: _show(session, architecture, *origin))


@command(app, "import", server=False)
def import_model(
    session: Session,
    folder: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A Hugging Face folder, a config.json alone, or a GGUF file.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder to write the model to, with its weights. It must not exist."),
    ] = None,
) -> None:
    """Show a Hugging Face model or a GGUF file as a description, or write it with its weights and tokenizer to a folder
    for `model build`, `generate` and `evaluate`. Needs no server."""
    from edgefront.core.training.evaluation.given_model import (
        architecture_of,
        unread_tokenizer,
        write_imported,
    )

    architecture, tokenizer = architecture_of(folder), None
    if output is not None:
        with session.err.status(f"reading {folder} …"):
            tokenizer = write_imported(folder, output)
        note_dequantised(session, folder)
        if tokenizer is None:
            files = unread_tokenizer(folder)
            session.note(
                "without a tokenizer: there is none beside the model"
                if files is None
                else f"without a tokenizer: {files} cannot be read. Create a tokenizer.json with transformers' "
                "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
            )
        for name, number, file in () if tokenizer is None else tokenizer.ignored_ids:
            session.note(f"without {name} {number} of {file}: the tokenizer has no such token")
    result = {
        "digest": architecture.digest,
        "architecture": architecture.canonical,
        "path": None if output is None else str(output),
        "tokenizer": tokenizer is not None,
    }

    def show() -> None:
        if output is None:
            _show(session, architecture)
        else:
            session.say(str(output))

    session.put(result, show)


def _show(session: Session, architecture: Architecture, *origin: str) -> None:
    # A note goes to standard error, so standard output contains only the description.
    session.note(" · ".join((*origin, f"digest {architecture.digest}")))
    session.say(_readable(architecture.canonical))


def _readable(description: dict[str, Any], indent: str = "  ") -> str:
    """Formats a description as JSON with one line per field and block; version and kinds come first."""

    def ordered(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: fields[name] for name in sorted(fields, key=lambda name: name not in ("version", "kind"))}

    lines = []
    for name, value in ordered(description).items():
        if name == "blocks":
            text = "[\n" + ",\n".join(f"{indent}  {json.dumps(ordered(block))}" for block in value) + f"\n{indent}]"
        elif name == "source":
            text = _readable(value, f"{indent}  ")
        else:
            text = json.dumps(ordered(value) if isinstance(value, dict) else value)
        lines.append(f"{indent}{json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + f"\n{indent[2:]}}}"


@command(app, "list", server=False)
def list_models(
    session: Session,
    published: Annotated[
        bool, typer.Option("--published", help="The models published on the Hugging Face Hub, by id, instead.")
    ] = False,
) -> None:
    """List the catalogue's named models, or the published ones. Needs no server."""
    if published:
        _list_published(session)
        return
    from edgefront.core.architectures.cost.costs import costs
    from edgefront.core.architectures.models import named_models

    models = [(model, costs(model.architecture)) for model in named_models().values()]
    result = [
        {
            "name": model.name,
            "source": model.source,
            "digest": cost.digest,
            "decoder_parameters": cost.decoder_parameters,
            "total_parameters": cost.total_parameters,
        }
        for model, cost in models
    ]

    numbers = ("decoder", "total")
    table = Table("name", *numbers, "source", right=numbers, wrap=("source",), drop_first=("source",))
    for model, cost in models:
        table.add_row(model.name, millions(cost.decoder_parameters), millions(cost.total_parameters), model.source)
    session.put(result, table)


def _list_published(session: Session) -> None:
    from edgefront.client.show.published import UNKNOWN
    from edgefront.core.architectures.models.published import published_view
    from edgefront.core.architectures.published import (
        PublishedCatalogue,
        published_models,
        score_named,
        score_tables,
        stated_licence,
    )
    from edgefront.core.schemas.published import DEFAULT_SCORES

    scores = [score_named(DEFAULT_SCORES[kind], published_models()) for kind in ("base", "instruct")]
    models = tuple(published_view(model) for model in published_models().values())

    def show() -> None:
        described = [model for model in models if model.not_expressible is None]
        others = [model for model in models if model.not_expressible is not None]
        table = Table(
            *("id", "kind", "licence", "context", "parameters", "trained on"),
            *(score.benchmark for score in scores),
            "description",
            right=("context", "parameters", "trained on", *(score.benchmark for score in scores)),
            wrap=("description",),
            drop_first=("trained on", "context", "kind"),
        )
        for model in sorted(described, key=lambda model: model.counted_parameters or 0) + others:
            stated = UNKNOWN if model.parameters is None else f"~{model.parameters}"
            table.add_row(
                model.id,
                model.kind,
                stated_licence(model) or UNKNOWN,
                UNKNOWN if model.context_length is None else f"{model.context_length:,}",
                stated if model.counted_parameters is None else millions(model.counted_parameters),
                UNKNOWN if model.training_tokens is None else _short(model.training_tokens),
                *(NONE if (value := score.of(model)) is None else f"{value:g}" for score in scores),
                "yes" if model.not_expressible is None else f"no: {model.not_expressible}",
            )
        session.out.print(table)
        session.note(
            f"{len(models)} models, {len(described)} with a description. Scores: {' and '.join(map(str, scores))}; "
            "`edgefront describe ID` has all"
        )

    session.put(PublishedCatalogue(tables=tuple(score_tables().values()), models=models), show)


def _short(tokens: int) -> str:
    """Formats a count of tokens, such as 600B, 2T or 299.9B."""
    for unit, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if tokens >= unit:
            return f"{tokens / unit:.4g}{letter}"
    return str(tokens)
