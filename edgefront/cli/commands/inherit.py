"""`edgefront inherit …`: prune a trained model to submodels that start with its weights."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict, replace
from functools import partial
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefront.cli.commands.options import MODEL_FORMS, Force, MachineOptions, SpaceOptions
from edgefront.cli.session import Session, command, group
from edgefront.client.extras import need
from edgefront.client.show.output import duration
from edgefront.client.show.table import Table
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.files import check_free

if TYPE_CHECKING:
    from edgefront.core.quality.pruning_predictor import PruningPredictor
    from edgefront.core.schemas.trainings import TrainingView

app = group("Prune models: study the cost of pruning a trained model, and prune it.")

ParentFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The folder of a trained model, as `model import --output` writes it.")
]


@command(app, "study", server=False)
def study_model(
    session: Session,
    folder: ParentFolder,
    data: Annotated[
        str,
        typer.Option(help="Prepared data of the model's tokens: a name, the first digits of a digest, or a folder."),
    ],
    tokens: Annotated[
        int | None,
        typer.Option(min=256, help="Tokens of the validation split for the losses. Default: 2048; 512 with --quick."),
    ] = None,
    calibration: Annotated[
        int | None,
        typer.Option(
            min=256, help="Tokens of the training split for the importance. Default: 16384; 4096 with --quick."
        ),
    ] = None,
    combinations: Annotated[
        int | None,
        typer.Option(
            min=8,
            max=1000,
            help="Random submodels that are evaluated, for the interval. Default: 24; 12 with --quick.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A fifth of the time, with wider intervals.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random submodels.")] = 0,
    machine: MachineOptions = MachineOptions(),
    force: Force = False,
) -> None:
    """Study the pruning of a trained model: the importance of heads, inner units and channels, and the loss from
    dropping or narrowing each block. Writes cuts.safetensors beside the weights; says first how long it takes, minutes
    for 100 M parameters. Repeated after an interruption, the same command resumes. Needs no server.
    """
    from edgefront.core.data.prepared.prepared import find_prepared
    from edgefront.core.services.settings import Settings
    from edgefront.core.training.evaluation.package import CUTS, read_package
    from edgefront.core.training.pruning import study as pruning

    need("inherit study", "torch")
    _check_trained(folder)
    check_free(folder / CUTS, force=force)
    machine.use_threads()
    package = read_package(folder)
    prepared = find_prepared(Settings().data_folder, data)
    given = {"calibration_tokens": calibration, "tokens": tokens, "combinations": combinations, "seed": seed}
    settings = replace(
        pruning.QUICK if quick else pruning.PruningStudySettings(),
        **{name: value for name, value in given.items() if value is not None},
    )

    def begin(seconds: float, resumes: bool) -> None:
        own, fast = (
            duration(seconds * pruning.study_work(package.architecture, each)) for each in (settings, pruning.QUICK)
        )
        shorter = "" if quick else f"; with --quick about {fast}"
        session.note(f"{'resuming: ' if resumes else ''}the whole study takes about {own}{shorter}")

    with session.progress() as progress:
        study = pruning.study_pruning(
            package,
            prepared,
            str(package.facts.get("name") or folder.resolve().name),
            settings,
            device=machine.device,
            begin=begin,
            progress=partial(progress, "study"),
        )
    path = pruning.write_pruning_study(study, folder)
    _put_study(session, study.law, path)
    session.note(f"next: edgefront find --model {shlex.quote(str(folder))} --inherit --max-latency-ms MS")


@command(app, "show", server=False)
def show(session: Session, folder: ParentFolder) -> None:
    """Show a study: the loss from dropping and from narrowing each block. Needs no server."""
    from edgefront.core.training.evaluation.package import CUTS
    from edgefront.core.training.pruning.study_file import read_cut_law

    _check_trained(folder)
    law = read_cut_law(folder)
    if law is None:
        raise NotFound(
            f"{folder} has no pruning study ({CUTS}); create one first",
            allowed="edgefront inherit study FOLDER --data DATA",
        )
    _put_study(session, law, folder / CUTS)


@command(app, "cut", server=False)
def cut(
    session: Session,
    folder: ParentFolder,
    to: Annotated[str, typer.Option("--to", metavar="MODEL", help=f"The submodel: {MODEL_FORMS}.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write the submodel to. It must not exist.")],
) -> None:
    """Write a submodel of a studied model with its inherited weights, for `generate`, `evaluate` and `model build`.
    Needs no server.
    """
    from edgefront.core.training.evaluation.given_model import architecture_of
    from edgefront.core.training.evaluation.package import read_package
    from edgefront.core.training.pruning.study import write_submodel

    need("inherit cut", "torch")
    _check_trained(folder)
    written = write_submodel(read_package(folder), architecture_of(to), output)
    sentence = written.facts["cut"]["sentence"]
    result = {"path": str(output), "digest": written.architecture.digest, "cut": written.facts["cut"]}
    session.put(result, lambda: session.say(f"{sentence}\n{output}"))


def _check_trained(folder: Path) -> None:
    """Raises `NotFound` unless `folder` is an edgefront model folder with weights (a Hugging Face folder is not)."""
    from edgefront.core.training.evaluation.package import RESULT, WEIGHTS

    if not all((folder / name).is_file() for name in (RESULT, WEIGHTS)):
        raise NotFound(
            f"{folder} is not the folder of a trained model with its weights",
            allowed="a folder that `edgefront model import MODEL -o FOLDER` or `edgefront train download` wrote",
        )


def parent_training(session: Session, space: SpaceOptions) -> str | None:
    """Returns the training id of the model that --inherit names, whose submodels are searched; None without --inherit.
    A local folder is imported first.

    Raises `InvalidInput` if no model is given, or if the folder has no pruning study.
    """
    from edgefront.core.training.evaluation.package import CUTS

    if not space.inherit:
        return None
    if space.model is None:
        raise InvalidInput(
            "--inherit searches the submodels of a model: name it with --model",
            field="model",
            allowed="--model FOLDER, or a training's id",
        )
    if os.path.exists(space.model) and not (Path(space.model) / CUTS).is_file():
        raise InvalidInput(
            f"{space.model} has no {CUTS} with the cost of pruning",
            field="model",
            value=space.model,
            allowed="a folder of `edgefront model import --output`, after `edgefront inherit study FOLDER --data DATA`",
        )
    return training_id(session, space.model)


def training_id(session: Session, model: str) -> str:
    """Returns a training's id. If `model` is a local path, imports the model and returns the new training's id."""
    if not os.path.exists(model):
        return session.identifier("training", model)
    training = import_into_service(session, model)
    session.note(f"imported {training.name} as {training.id}")
    return training.id


def import_into_service(
    session: Session, model: str, name: str | None = None, licence: str | None = None
) -> TrainingView:
    """Imports a local model into the service as a completed training."""
    note_dequantised(session, model)
    with session.err.status(f"importing {model} …"):
        return session.client.trainings.import_model(model, name=name, licence=licence)


def note_dequantised(session: Session, model: str | Path) -> None:
    """Prints a note, for a GGUF file only, that the import dequantises the weights."""
    from edgefront.core.training.evaluation.given_model import quantised_in

    if (formats := quantised_in(model)) is not None:
        session.note(f"dequantised: the file's {formats} weights become float32, without further loss")


def _put_study(session: Session, law: PruningPredictor, path: Path) -> None:
    """Prints a pruning study: the predicted loss from dropping or narrowing each block of the model."""
    import numpy as np

    from edgefront.core.training.pruning.submodel import narrow_block

    perplexity = exp(law.parent_log_perplexity)
    blocks = list(zip(law.parent.blocks, law.table.blocks, strict=True))

    def show() -> None:
        losses = ("left out", "half of it")
        table = Table("block", "kind", *losses, "block influence", right=("block", *losses))
        for number, (block, cuts) in enumerate(blocks):
            half = ""
            if narrow_block(block, 0.5) != block:
                half = f"{float(cuts.narrowed(np.array(0.5))):+.3f}"
            table.add_row(str(number), block.kind, f"{cuts.dropped:+.3f}", half, f"{cuts.influence:.3f}")
        session.out.print(table)
        session.out.print(
            f"Losses are in nats a token on {law.origin.data}, where the model's perplexity is {perplexity:.4g}; "
            f"{law.models} random submodels were evaluated.",
            markup=False,
        )
        session.say(str(path))

    result = {
        "path": str(path),
        "law": law.origin.name,
        "parent": law.parent.digest,
        "data": law.origin.data,
        "perplexity": perplexity,
        "combinations": law.models,
        "blocks": [
            {"number": number, "kind": block.kind, **asdict(cuts)} for number, (block, cuts) in enumerate(blocks)
        ],
        "width": asdict(law.table.width),
    }
    session.put(result, show)
