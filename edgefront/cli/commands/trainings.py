"""`edgefront train …`: submits, shows, controls and downloads trainings."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from edgefront.cli.commands.inherit import import_into_service, training_id
from edgefront.cli.commands.options import (
    Force,
    LogitsOption,
    Newest,
    Numbers,
    PassLimitOptions,
    RecipeOptions,
    TrainingId,
    TrainingIds,
    Watch,
)
from edgefront.cli.session import Identifies, Session, command, group, state_commands
from edgefront.client.show.output import NONE, millions, print_event, share
from edgefront.client.show.table import Table
from edgefront.core.common.errors import EdgefrontError, InvalidInput
from edgefront.core.common.states import TrainingState
from edgefront.core.common.validation import checked, one_of
from edgefront.core.model_files.model_file import ModelFormat, as_folder

app = group("Train models of a frontier or any others: submit, watch, control, download.")


@command(app, "submit")
def submit(
    session: Session,
    file: Annotated[
        Path | None,
        typer.Argument(help="File with the request as JSON, in the format of POST /v1/trainings; or use the options."),
    ] = None,
    architecture: Annotated[
        str | None, typer.Option(metavar="MODEL", help="An architecture, in any form that `describe` accepts.")
    ] = None,
    candidate: Annotated[
        str | None,
        typer.Option(help="Id of a candidate, from `frontier`."),
        Identifies("candidate"),
    ] = None,
    frontier: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="Train points of this job's frontier."),
        Identifies("job"),
    ] = None,
    target: Annotated[str | None, typer.Option(help="Target of the job, by id or name. Default: its first.")] = None,
    count: Annotated[
        int | None, typer.Option(help="Number of points, spread evenly by size. Default: all within the limits.")
    ] = None,
    limit: PassLimitOptions = PassLimitOptions(),
    training: RecipeOptions = RecipeOptions(),
    start: Annotated[
        str | None,
        typer.Option(
            metavar="TRAINING|MODEL",
            help="Initialise with the weights of this training of the same architecture, or of a folder or a GGUF "
            "file, which is imported first. Alone: train its model. With recipe distil it is also the teacher.",
        ),
    ] = None,
    inherit: Annotated[
        bool,
        typer.Option(
            "--inherit",
            help="The model is a submodel of the one of --start, or of the one whose submodels its job searched, and "
            "starts with its weights. Default recipe: distil.",
        ),
    ] = False,
    tokens: Annotated[
        int | None, typer.Option(help="End after about this many tokens; the schedule is shortened to them.")
    ] = None,
    hours: Annotated[float | None, typer.Option(help="End after this many hours of training.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda. Default: the service's setting.")] = None,
    gpus: Annotated[int, typer.Option(help="Number of GPUs of one machine.")] = 1,
    memory_gb: Annotated[
        float | None, typer.Option(help="Minimum memory in GiB of each GPU, or of the machine.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the initialisation and the data order.")] = 0,
    name: Annotated[str | None, typer.Option(help="Name of the training.")] = None,
    watch: Watch = False,
) -> None:
    """Train points of a frontier, a candidate, a named model or an architecture, or a trained model further."""
    from edgefront.client import requests
    from edgefront.core.schemas.trainings import TrainingRequest

    if file is not None:
        request = requests.read_request(file, TrainingRequest)
    else:
        selection = {"target": target, **asdict(limit), "count": count}
        subject = requests.training_subject(architecture, candidate, frontier, selection, has_start=start is not None)
        if inherit and not subject:
            raise InvalidInput(
                "--inherit trains a submodel of --start: name the submodel, or omit --inherit to train the whole model",
                field="architecture",
                allowed="--architecture MODEL, --candidate CANDIDATE or --frontier JOB",
            )
        start_id = None if start is None else training_id(session, start)
        if start_id is not None and not subject:
            subject = requests.architecture_subject(session.client.trainings.get(start_id))
        request = checked(
            TrainingRequest,
            {
                **subject,
                **training.fields,
                "name": name,
                "start": start_id,
                "inherit": inherit,
                "budget": {"steps": training.steps, "tokens": tokens, "hours": hours},
                "requires": {"device": device, "gpus": gpus, "memory_gb": memory_gb},
                "seed": seed,
            },
        )
    trainings = session.client.trainings.create(request)
    ids = [item.id for item in trainings]
    if watch:
        session.note(f"submitted {', '.join(ids)}")
        _watch(session, ids)
        return

    def show() -> None:
        for item in trainings:
            session.out.print(item.id)
            session.note(f"{item.name}: {item.note or item.state}")
        session.note(f"watch with `edgefront train watch {' '.join(ids)}`")

    session.put(trainings, show)


@command(app, "import")
def import_model(
    session: Session,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="The folder of a trained or a Hugging Face model with its weights, or a GGUF file."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Name of the training. Default: the model's.")] = None,
    licence: Annotated[
        str | None,
        typer.Option(
            "--licence",
            "--license",
            metavar="NAME",
            help="Licence of the weights. Default: as the model records it, or a Hugging Face folder's README.",
        ),
    ] = None,
) -> None:
    """Import a model with its weights as a completed training, to download it or start trainings from it."""
    training = import_into_service(session, model, name, licence)

    def show() -> None:
        session.out.print(training.id)
        session.note(f"{training.name}, licence {training.licence or 'not stated'}")
        session.note(f"train from it with `edgefront train submit --start {training.id} --data DATA`")

    session.put(training, show)


@command(app, "recipes")
def list_recipes(
    session: Session,
    name: Annotated[str | None, typer.Argument(help="Show every field of this recipe.")] = None,
) -> None:
    """List the recipes that trainings may use, or show one."""
    recipes = {recipe.name: recipe for recipe in session.client.catalogue.recipes()}
    if name is not None:
        recipe = recipes[one_of("recipe", name, tuple(recipes))]
        session.put(recipe, lambda: session.out.print_json(data=recipe.recipe))
        return
    table = Table.of(
        recipes.values(),
        {
            "recipe": lambda item: item.name,
            "what": lambda item: item.title,
            "trains": lambda item: item.task,
            "data": lambda item: item.dataset or NONE,
            "steps": lambda item: f"{item.steps:,}",
            "tokens": lambda item: millions(item.tokens),
        },
        right=("steps", "tokens"),
        wrap=("what",),
        drop_first=("what", "trains", "tokens"),
    )
    session.put(list(recipes.values()), table)


@command(app, "data")
def list_datasets(session: Session) -> None:
    """List the data sets of the service."""
    datasets = session.client.trainings.datasets()
    table = Table(
        *("data", "digest", "level", "vocabulary", "what"),
        right=("vocabulary",),
        wrap=("digest", "what"),
        drop_first=("what", "vocabulary"),
    )
    for item in datasets:
        digest = "prepared on first use" if item.digest is None else item.digest[:12]
        vocabulary = NONE if item.vocab_size is None else f"{item.vocab_size:,}"
        table.add_row(item.name, digest, item.level, vocabulary, item.title)
    session.put(datasets, table)


@command(app, "workers")
def list_trainers(session: Session) -> None:
    """List the workers whose pace of training is known."""
    trainers = session.client.trainings.trainers()
    numbers = ("GPUs", "trainings", "GFLOP/s", "µs a token besides")
    table = Table("worker", *numbers, right=numbers)
    for item in trainers:
        pace = item.pace
        speed = NONE if pace.seconds_per_flop == 0 else f"{1e-9 / pace.seconds_per_flop:,.3g}"
        overhead = f"{1e6 * pace.seconds_per_token:.3g}"
        table.add_row(item.name, str(item.gpus or "CPU"), str(pace.trainings), speed, overhead)
    session.put(trainers, table)


@command(app, "list")
def list_trainings(
    session: Session,
    state: Annotated[str | None, typer.Option(help="List only trainings in this state.")] = None,
    job: Annotated[
        str | None,
        typer.Option(help="List only trainings of this job's candidates."),
        Identifies("job"),
    ] = None,
    limit: Newest = 50,
) -> None:
    """List trainings, the newest first."""
    from edgefront.client.show.training_tables import trainings_table

    trainings = list(islice(session.client.trainings.list(state=state, job=job, limit=min(limit, 200)), limit))
    session.put(trainings, trainings_table(trainings))


@command(app, "show")
def show_training(session: Session, training: TrainingId) -> None:
    """Show a training: its progress, its scores, and the measured latency and memory of its model."""
    from edgefront.client.show.training_tables import facts

    view = session.client.trainings.get(training)

    def show() -> None:
        for name, value in facts(view).items():
            session.say(f"{name:14} {value}")

    session.put(view, show)


@command(app, "watch")
def watch_training(session: Session, training: TrainingIds) -> None:
    """Watch trainings until they end. With --json: one event per line, of one training. Ctrl-C leaves them running."""
    _watch(session, training)


def _watch(session: Session, ids: list[str]) -> None:
    from edgefront.client.show.training_tables import watch

    client = session.watching_client
    for training in ids:
        client.trainings.get(training)  # fails at once if a training does not exist
    if session.json:
        if len(ids) > 1:
            raise typer.BadParameter("with --json, watch one training at a time")
        for event in client.trainings.events(ids[0]):
            print_event(event)
        ended = [client.trainings.get(ids[0])]
    else:
        ended = watch(client.trainings.get, ids, session.screen)
    failed = [training for training in ended if training.state == TrainingState.FAILED]
    if failed:
        raise EdgefrontError("; ".join(f"training {item.id} failed: {item.reason}" for item in failed))


@command(app, "log")
def log(
    session: Session,
    training: TrainingId,
    tail: Annotated[int, typer.Option(min=1, max=100_000, help="Number of lines at the end to print.")] = 200,
) -> None:
    """Print the log of a training's processes."""
    text = session.client.trainings.log(training, tail=tail)
    session.put({"log": text}, lambda: typer.echo(text, nl=False))


@command(app, "layers")
def layers(session: Session, training: TrainingId) -> None:
    """Show the current probability of each block in each layer of a supernet."""
    probabilities = session.client.trainings.probabilities(training)

    def show() -> None:
        if not probabilities.searches:
            session.note("no probabilities are reported yet")
        for search in probabilities.searches:
            title = f"seed {search.seed}: {search.pattern} ({search.phase})"
            table = Table("layer", *probabilities.choices, title=title, right=probabilities.choices)
            for layer, row in enumerate(search.records[-1].probabilities, 1):
                table.add_row(str(layer), *(share(probability) for probability in row))
            session.out.print(table)

    session.put(probabilities, show)


state_commands(
    app,
    "trainings",
    TrainingId,
    {
        "pause": "Pause a training after its current step, with a checkpoint. Its slot becomes free.",
        "resume": "Resume a paused or failed training from its last checkpoint.",
        "cancel": "End a training permanently; its checkpoints are kept.",
        "delete": "Delete a training with its curves and files. The scores of its architecture are kept.",
    },
)


@command(app, "download")
def download(
    session: Session,
    training: TrainingId,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder to write to. Default: a folder named by the id; with --format the current one. With --format "
            "also a file.",
        ),
    ] = None,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Download the newest checkpoint instead of the result.")
    ] = False,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Download the curves instead: `tensorboard --logdir FOLDER` shows them."),
    ] = False,
    kind: Annotated[
        ModelFormat | None,
        typer.Option(
            "--format",
            help="One file with the trained weights instead: gguf for llama.cpp, transformers (a folder, or an "
            "archive if --output ends in .tar), ONNX …, as `model build`.",
        ),
    ] = None,
    numbers: Numbers = None,
    logits: LogitsOption = None,
    force: Force = False,
) -> None:
    """Download a trained model: weights, description, tokenizer, or one file. Resumes an interrupted download."""
    for field, value in (("numbers", numbers), ("logits", logits)):
        if kind is None and value is not None:
            raise InvalidInput(f"{field} needs --format", field=field, value=value, allowed="omit, or --format onnx")
    if kind is not None and (checkpoint or tensorboard):
        field = "checkpoint" if checkpoint else "tensorboard"
        raise InvalidInput(
            f"{field}: --format applies to the result and cannot be combined with --{field}",
            field=field,
            value=True,
            allowed="omit",
        )
    numbers = numbers or "float32"
    folder = output or Path(training if kind is None else ".")
    trainings = session.client.trainings
    with session.progress(in_bytes=True) as update:
        if kind is None:
            replace = force or tensorboard
            paths = trainings.download(
                training, folder, checkpoint=checkpoint, tensorboard=tensorboard, replace=replace, progress=update
            )
        else:
            with as_folder(folder, kind, force=force) as target:
                downloaded = trainings.download_model(
                    training,
                    kind,
                    target,
                    numbers=numbers,
                    logits=logits,
                    replace=force,
                    progress=partial(update, kind),
                )
            folder = downloaded if target == folder else folder
            paths = tuple(sorted(folder.iterdir())) if folder.is_dir() else (folder,)
    result = {"training": training, "folder": str(folder), "files": [str(path) for path in paths]}
    if kind is not None:
        result |= {"folder": str(folder if folder.is_dir() else folder.parent), "format": kind, "numbers": numbers}
    session.put(result, lambda: session.say(str(folder)))
