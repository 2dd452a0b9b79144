"""`edgefront finetune`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from edgefront.commands.base import Session, command
from edgefront.commands.evaluate import put, write_json
from edgefront.commands.options import MachineOptions, ResultOptions, Trained

_PANELS = {
    "Table": "text pair label",
    "Training": "epochs rows lr max_length seed",
    "Machine": "precision device threads",
}


def add_to(app: typer.Typer) -> None:
    command(app, "finetune", server=False, panels=_PANELS)(finetune)


def finetune(
    session: Session,
    model: Trained,
    train: Annotated[Path, typer.Option(help="Training rows: tab-separated (GLUE), or JSON (SQuAD).")],
    test: Annotated[Path, typer.Option(help="Test rows, in the same format.")],
    text: Annotated[str | None, typer.Option(help="Column of the text. Default: GLUE's name for it.")] = None,
    pair: Annotated[str | None, typer.Option(help="Column of a second text.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label: a class or a number.")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training rows.")] = 3,
    rows: Annotated[int, typer.Option(min=1, help="Rows per step (batch size).")] = 32,
    lr: Annotated[float, typer.Option(help="Highest learning rate.")] = 3e-5,
    max_length: Annotated[int, typer.Option(min=8, help="Maximum tokens of a row.")] = 128,
    seed: Annotated[
        int, typer.Option(min=0, max=(1 << 32) - 1, help="Seed of the new output layer, the order of rows and dropout.")
    ] = 0,
    precision: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Number format of the passes.")] = "float32",
    machine: MachineOptions = MachineOptions(),
    written: ResultOptions = ResultOptions(),
) -> None:
    """Fine-tune an encoder (BERT) on local files and score it: classes, numbers or answers. Needs no server."""
    from edgefront.core.evaluation.given_model import package_of
    from edgefront.extras import need

    written.check()
    need("finetune", "torch")
    machine.use_threads()
    package = session.held.enter_context(package_of(model))
    from edgefront.core.finetune.answers import answer_questions, read_questions
    from edgefront.core.finetune.classification import classify, read_table
    from edgefront.core.finetune.finetune import FineTuning

    settings = FineTuning.parse(
        {"epochs": epochs, "rows": rows, "lr": lr, "max_length": max_length, "seed": seed, "precision": precision}
    )
    body = package.model(machine.device)
    predictions: Any
    with session.progress() as show:

        def stepped(done: int, total: int, _: float) -> None:
            show("tuning", done, total)

        if train.suffix == ".json":
            questions = [read_questions(path) for path in (train, test)]
            answered = answer_questions(
                body, package.tokenizer, questions[0], questions[1], settings, device=machine.device, progress=stepped
            )
            scores, predictions = answered.scores, answered.predictions
        else:
            tables = [read_table(path, text=text, pair=pair, label=label) for path in (train, test)]
            classified = classify(
                body, package.tokenizer, tables[0], tables[1], settings, device=machine.device, progress=stepped
            )
            scores, predictions = classified.scores, classified.predictions
    result = {"digest": package.architecture.digest, "settings": settings.model_dump(mode="json"), "scores": scores}
    if written.output is not None:
        write_json(written.output, {**result, "predictions": predictions})
    put(session, result, None)
