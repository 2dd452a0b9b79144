"""`edgefront model …`: shows, builds, downloads and imports models."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from edgefront.cli.commands.inherit import note_dequantised
from edgefront.cli.commands.options import (
    MODEL_HELP,
    CandidateId,
    FileFormat,
    Force,
    Licence,
    LogitsOption,
    ModelArgument,
    Numbers,
    PassOptions,
)
from edgefront.cli.session import Session, command, group
from edgefront.client.show.output import megabytes, millions, milliseconds
from edgefront.client.show.table import Table
from edgefront.core.common.files import check_free
from edgefront.core.common.number_formats import NumberFormat, Quantisation
from edgefront.core.common.validation import one_of
from edgefront.core.measurement.runtimes import Runtime
from edgefront.core.model_files.model_file import (
    LOGITS,
    ModelFormat,
    as_folder,
    as_measured,
    bytes_at,
    check_format,
    file_name,
    write_model,
)

if TYPE_CHECKING:
    from edgefront.core.architectures.architecture import Architecture
    from edgefront.core.architectures.cost.passes import Logits
    from edgefront.core.schemas.candidates import CandidateDetails, DownloadView

app = group("Models: download candidates of a search; list, show, import and build named models and your own.")

Output = Annotated[Path, typer.Option("--output", "-o", help="File or folder to write to.")]


@command(app, "download")
def download(
    session: Session,
    candidate: CandidateId,
    kind: FileFormat = "onnx",
    numbers: Numbers = None,
    logits: LogitsOption = None,
    output: Output = Path("."),
    force: Force = False,
) -> None:
    """Download a model (untrained weights, generated from the candidate's seed), in the number format and with the
    logits that were measured. Resumes an interrupted download."""
    details = session.client.candidates.details(candidate)
    with as_folder(output, kind, force=force) as target, session.progress(in_bytes=True) as update:
        downloaded = session.client.models.download(
            candidate, kind, target, numbers=numbers, logits=logits, replace=force, progress=partial(update, kind)
        )
    path = output if target != output else downloaded
    measured_numbers, measured_logits = as_measured(kind, details.protocol.number_format, details.protocol.logits)
    numbers, logits = numbers or measured_numbers, logits or measured_logits
    result = {
        "candidate": candidate,
        "format": kind,
        "numbers": numbers,
        "logits": logits,
        "path": str(path),
        "bytes": bytes_at(path),
    }
    for file in details.downloads:
        if file.format == kind and file.logits is not None:
            is_measured = (file.logits, numbers) == (measured_logits, measured_numbers)
            session.note(_takes(details, file, is_chosen=file.logits == logits, is_measured=is_measured))
    session.put(result, lambda: session.say(str(path)))


def _takes(details: CandidateDetails, file: DownloadView, *, is_chosen: bool, is_measured: bool) -> str:
    """Says what a graph computes and takes: operations and logits by count, time and memory if they were measured."""
    candidate, protocol = details.candidate, details.protocol
    positions = protocol.batch * protocol.sequence_length
    words = {"last": "the last position", "all": f"all {positions} positions", "none": "no position"}
    text = f"{'this file' if is_chosen else f'--logits {file.logits}'}: logits of {words[file.logits or 'none']}, "
    text += f"{(file.flops or 0) / 1e9:.3g} GFLOPs, {megabytes(file.logits_bytes)} MB of logits; "
    runs_file = protocol.runtime in ("onnxruntime", "openvino") and protocol.mode == "forward"
    if not (is_measured and runs_file) or candidate.latency_ms is None:
        return f"{text}not measured"
    return f"{text}measured {milliseconds(candidate.latency_ms)} ms and {megabytes(candidate.memory_bytes)} MB"


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
    numbers: Numbers = None,
    logits: LogitsOption = None,
    output: Output = Path("."),
    seed: Annotated[int, typer.Option(min=0, max=(1 << 63) - 1, help="Seed of the random weights.")] = 0,
    force: Force = False,
) -> None:
    """Write a model to a file, with its trained weights or with untrained ones from a seed. Needs no server."""
    result = _write(session, model, kind, numbers or "float32", logits, output, seed=seed, force=force)
    if result["weights"] == "untrained-random":
        session.note(f"untrained: the weights are random numbers from seed {seed}")
    session.put(result, lambda: session.say(result["path"]))


def _write(
    session: Session,
    model: str,
    kind: ModelFormat,
    numbers: NumberFormat,
    logits: Logits | None,
    output: Path,
    *,
    seed: int = 0,
    force: bool,
) -> dict[str, Any]:
    """Writes a model to a file in the folder `output`, or to this file; returns what the file is and its path."""
    from edgefront.core.training.evaluation.given_model import architecture_of, has_weights, package_of

    trained = session.resources.enter_context(package_of(model)) if has_weights(model) else None
    architecture = architecture_of(model) if trained is None else trained.architecture
    check_format(architecture, kind, numbers, logits)
    files = trained.hugging_face_files() if trained is not None and kind in ("transformers", "gguf") else None
    from_seed = seed if trained is None else None
    with as_folder(output, kind, force=force) as target:
        name = file_name(architecture.digest, from_seed, kind, numbers, logits)
        file = target / name if target.is_dir() else target
        check_free(file, force=force)
        with session.err.status(f"building {file.name} …"):
            values = seed if trained is None else trained.weights
            write_model(architecture, kind, values, file, numbers, files, logits)
    path = output if target != output else file
    weights = "none" if kind == "architecture" else "untrained-random" if trained is None else "trained"
    return {
        "digest": architecture.digest,
        "format": kind,
        "numbers": numbers,
        "logits": logits or LOGITS.get(kind, (None,))[0],
        "seed": from_seed,
        "weights": weights,
        "path": str(path),
        "bytes": bytes_at(path),
    }


@command(app, "get", server=False)
def get(
    session: Session,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A model of the Hugging Face Hub (OWNER/NAME); or, without network, a folder with its weights or a "
            "GGUF file in place of the id.",
        ),
    ],
    runtime: Annotated[Runtime, typer.Option(help="Runtime that is to execute the model.")] = "llamacpp",
    provider: Annotated[str, typer.Option(help="Execution provider or device: cpu, cuda …")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Number of threads of the runtime.")] = 1,
    measured_pass: PassOptions = PassOptions(),
    context: Annotated[str | None, typer.Option(metavar="TOKENS", help="Tokens before the prompt. Default: 0.")] = None,
    output: Output = Path("."),
    force: Force = False,
) -> None:
    """Download a published model, write it in the format of a runtime, measure it once, and say how to run it.

    HF_ENDPOINT names a mirror of the Hub. An interrupted download resumes; a local folder or file needs no network. A
    GGUF file stays as it is unless --weights names another format. Needs no server.
    """
    from edgefront.cli.commands.measure import measure
    from edgefront.cli.workflows.get import fetch, is_in, named_in
    from edgefront.core.training.evaluation.given_model import is_gguf

    source = fetch(model)
    weights, dtype = measured_pass.weights, measured_pass.dtype
    usual = {"llamacpp": "q8_0", "pytorch": "float32"}.get(runtime, "int8")
    chosen = dtype or "float32" if weights == "full" else weights or dtype
    numbers: NumberFormat = one_of("weights", chosen or usual, get_args(NumberFormat))
    fields: dict[str, Any] = {"mode": measured_pass.mode or "generate"}
    fields |= {"weights": numbers} if numbers in get_args(Quantisation) else {"dtype": numbers}
    subject, name = source, f"{Path(model).name.removesuffix('.gguf')}-{numbers}"
    if runtime == "llamacpp":
        fields |= {"weights": None, "dtype": None}  # the file decides
        if not (is_gguf(source) and (chosen is None or is_in(source, numbers))):
            subject = named_in(output, f"{name}.gguf")
            _write(session, str(source), "gguf", numbers, None, subject, force=force)
        elif output != Path("."):
            session.note(f"{source} is in this format: it stays there, and nothing is written to {output}")
    elif runtime != "pytorch":
        file = named_in(output, f"{name}.onnx")
        kind: ModelFormat = "onnx-generate" if fields["mode"] == "generate" else "onnx"
        _write(session, str(source), kind, numbers, "last", file, force=force)
        session.note(f"{file}: docs/generate.md has the loop that runs it; measured by its description")
    measure(
        session,
        str(subject),
        runtime=runtime,
        provider=provider,
        threads=threads,
        measured_pass=replace(measured_pass, **fields),
        context=context,
        launches=1,
    )
    if not session.json:
        if runtime == "llamacpp":
            session.say(shlex.join(["llama-cli", "-m", str(subject), "-p", "Once upon a time", "-n", "40"]))
        generate = ["edgefront", "generate", str(subject), "--prompt", "Once upon a time", "--threads", str(threads)]
        session.say(shlex.join(generate))
        if runtime != "pytorch":
            session.note(
                "edgefront generate computes in float32 with PyTorch: slower, and in more memory, than measured"
            )


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
        from edgefront.client.show.published import catalogue_table
        from edgefront.core.architectures.models.published import published_view
        from edgefront.core.architectures.published import (
            PublishedCatalogue,
            published_models,
            score_named,
            score_tables,
        )
        from edgefront.core.schemas.published import DEFAULT_SCORES

        scores = [score_named(DEFAULT_SCORES[kind], published_models()) for kind in ("base", "instruct")]
        views = tuple(published_view(model) for model in published_models().values())

        def show_published() -> None:
            session.out.print(catalogue_table(views, scores))
            described = sum(view.not_expressible is None for view in views)
            session.note(
                f"{len(views)} models, {described} with a description. Scores: {' and '.join(map(str, scores))}; "
                "`edgefront describe ID` has all"
            )

        session.put(PublishedCatalogue(tables=tuple(score_tables().values()), models=views), show_published)
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
