"""`edgefront inherit …`: parts of a trained model that begin with its weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefront.cli.commands.base import Session, command, group
from edgefront.cli.commands.options import WAYS, Force, MachineOptions, ModelSpaceOptions

if TYPE_CHECKING:
    from edgefront.core.quality.cut_law import CutLaw
    from edgefront.core.schemas.trainings import TrainingView

app = group("Cut models: study what cuts of a trained model cost, and cut one.")

ParentFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The folder of a trained model, as `model import --output` writes it.")
]


@command(app, "study", server=False)
def study(
    session: Session,
    folder: ParentFolder,
    data: Annotated[
        str,
        typer.Option(help="Prepared data of the model's tokens: a name, the first digits of a digest, or a folder."),
    ],
    tokens: Annotated[
        int, typer.Option(min=256, help="Tokens of the validation split that losses are taken on.")
    ] = 2048,
    calibration: Annotated[
        int, typer.Option(min=256, help="Tokens of the training split that importance is taken on.")
    ] = 16_384,
    combinations: Annotated[
        int, typer.Option(min=8, max=1000, help="Random parts that are cut and evaluated, for the interval.")
    ] = 24,
    seed: Annotated[int, typer.Option(min=0, help="Of the random parts.")] = 0,
    machine: MachineOptions = MachineOptions(),
    force: Force = False,
) -> None:
    """Study the cuts of a trained model: which heads, inner units and channels matter, and what leaving out or
    narrowing each block costs. Writes cuts.safetensors beside the weights. Minutes for 100 M parameters. No server.
    """
    from edgefront.cli.extras import need
    from edgefront.core.common.files import check_free
    from edgefront.core.data.prepared.prepared import find_prepared
    from edgefront.core.services.settings import Settings
    from edgefront.core.training.evaluation.package import CUTS, read_package
    from edgefront.core.training.pruning.study import PruningStudySettings, study_pruning, write_pruning_study

    need("inherit study", "torch")
    _check_trained(folder)
    check_free(folder / CUTS, force=force)
    machine.use_threads()
    package = read_package(folder)
    prepared = find_prepared(Settings().data_folder, data)
    settings = PruningStudySettings(calibration_tokens=calibration, tokens=tokens, combinations=combinations, seed=seed)
    with session.progress() as progress:
        made = study_pruning(
            package,
            prepared,
            str(package.facts.get("name") or folder.resolve().name),
            settings,
            device=machine.device,
            progress=progress,
        )
    path = write_pruning_study(made, folder)
    session.put({"path": str(path), **facts(made.law)}, lambda: _show(session, made.law, path))


@command(app, "show", server=False)
def show(session: Session, folder: ParentFolder) -> None:
    """Show what a study says: the loss of leaving out and of narrowing each block. Needs no server."""
    from edgefront.core.common.errors import NotFound
    from edgefront.core.training.evaluation.package import CUTS
    from edgefront.core.training.pruning.study_file import read_cut_law

    _check_trained(folder)
    law = read_cut_law(folder)
    if law is None:
        raise NotFound(f"{folder} has no {CUTS}", allowed="edgefront inherit study FOLDER --data DATA")
    session.put({"path": str(folder / CUTS), **facts(law)}, lambda: _show(session, law, folder / CUTS))


@command(app, "cut", server=False)
def cut(
    session: Session,
    folder: ParentFolder,
    to: Annotated[str, typer.Option("--to", metavar="MODEL", help=f"The part: {WAYS}.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write the part to. It must not exist.")],
) -> None:
    """Write a part of a studied model with the weights that it inherits, for `generate`, `evaluate` and `model build`.
    Needs no server.
    """
    from edgefront.cli.extras import need
    from edgefront.core.training.evaluation.given_model import architecture_of
    from edgefront.core.training.evaluation.package import read_package
    from edgefront.core.training.pruning.study import write_submodel

    need("inherit cut", "torch")
    _check_trained(folder)
    written = write_submodel(read_package(folder), architecture_of(to), output)
    said = written.facts["cut"]["sentence"]
    result = {"path": str(output), "digest": written.architecture.digest, "cut": written.facts["cut"]}
    session.put(result, lambda: session.say(f"{said}\n{output}"))


def _check_trained(folder: Path) -> None:
    """`NotFound` where this is no folder of ours with weights, as Hugging Face folders and GGUF files are not."""
    from edgefront.core.common.errors import NotFound
    from edgefront.core.training.evaluation.package import RESULT, WEIGHTS

    if not all((folder / name).is_file() for name in (RESULT, WEIGHTS)):
        raise NotFound(
            f"{folder} is not the folder of a trained model with its weights",
            allowed="a folder that `edgefront model import MODEL -o FOLDER` or `edgefront train download` wrote",
        )


def parent(session: Session, within: ModelSpaceOptions) -> str | None:
    """The id of the service's model whose parts are searched; a folder on this machine is imported. None without
    --inherit. `InvalidInput` where there is no model, or no study of its cuts beside it.
    """
    from edgefront.core.common.errors import InvalidInput
    from edgefront.core.training.evaluation.package import CUTS

    if not within.inherit:
        return None
    if within.model is None:
        raise InvalidInput(
            "--inherit searches the parts of a model: name it",
            field="model",
            allowed="--model FOLDER, or a training's id",
        )
    if not os.path.exists(within.model):
        return session.identifier("training", within.model)
    if not (Path(within.model) / CUTS).is_file():
        raise InvalidInput(
            f"{within.model} has no {CUTS}: what its cuts cost is not known",
            field="model",
            value=within.model,
            allowed="a folder of `edgefront model import --output`, after `edgefront inherit study FOLDER --data DATA`",
        )
    training = imported(session, within.model)
    session.note(f"parts of {training.name}, imported as {training.id}")
    return training.id


def start_of(session: Session, given: str) -> str:
    """The id of the training to start from; a model on this machine is imported."""
    if not os.path.exists(given):
        return session.identifier("training", given)
    training = imported(session, given)
    session.note(f"starts from {training.name}, imported as {training.id}")
    return training.id


def imported(session: Session, model: str, name: str | None = None, licence: str | None = None) -> TrainingView:
    """The training that the import of a model on this machine makes."""
    from edgefront.core.training.evaluation.given_model import quantised_in

    if (formats := quantised_in(model)) is not None:
        session.note(f"dequantised: {formats} of the file are float32 numbers now, as exact as they were")
    with session.err.status(f"importing {model} …"):
        return session.client.trainings.import_model(model, name=name, licence=licence)


def facts(law: CutLaw) -> dict[str, Any]:
    """The study as JSON."""
    from dataclasses import asdict
    from math import exp

    blocks = [
        {"number": number, "kind": block.kind, **asdict(cuts)}
        for number, (block, cuts) in enumerate(zip(law.parent.blocks, law.table.blocks, strict=True))
    ]
    return {
        "law": law.origin.name,
        "parent": law.parent.digest,
        "data": law.origin.data,
        "perplexity": exp(law.parent_log_perplexity),
        "combinations": law.models,
        "blocks": blocks,
        "width": asdict(law.table.width),
    }


def _show(session: Session, law: CutLaw, path: Path) -> None:
    from math import exp

    import numpy as np

    from edgefront.cli.show.output import table
    from edgefront.core.training.pruning.submodel import narrow_block

    shown = table(
        "block", "kind", "left out", "half of it", "block influence", right=("block", "left out", "half of it")
    )
    for number, (block, cuts) in enumerate(zip(law.parent.blocks, law.table.blocks, strict=True)):
        half = float(cuts.narrowed(np.array(0.5))) if narrow_block(block, 0.5) != block else None
        shown.add_row(
            str(number),
            block.kind,
            f"{cuts.dropped:+.3f}",
            "" if half is None else f"{half:+.3f}",
            f"{cuts.influence:.3f}",
        )
    session.out.print(shown)
    session.out.print(
        f"Losses are in nats a token on {law.origin.data}, where the model's perplexity is "
        f"{exp(law.parent_log_perplexity):.4g}; {law.models} random parts were evaluated.",
        markup=False,
    )
    session.say(str(path))
