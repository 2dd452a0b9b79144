"""`edgefront evaluate`"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edgefront.commands.base import Session, command
from edgefront.commands.options import MachineOptions, ResultOptions, Trained

if TYPE_CHECKING:
    from edgefront.core.data.prepared.prepared import Prepared
    from edgefront.core.evaluation.package import Package

_PANELS = {
    "Perplexity": "segment memory clamp same_length max_tokens",
    "Translation": "beam length_penalty tokenize",
    "Tasks": "include shots",
    "Machine": "precision device threads",
}


def add_to(app: typer.Typer) -> None:
    command(app, "evaluate", server=False, panels=_PANELS)(evaluate)


def evaluate(
    session: Session,
    model: Trained,
    data: Annotated[
        str | None,
        typer.Option(help="Prepared data for perplexity or BLEU: a name, the first digits of a digest, or a folder."),
    ] = None,
    split: Annotated[str, typer.Option(help="Split of the data set.")] = "test",
    tasks: Annotated[str | None, typer.Option(help="Tasks of lm-evaluation-harness, separated by commas.")] = None,
    include: Annotated[Path | None, typer.Option(help="Folder with your own tasks as YAML.")] = None,
    shots: Annotated[int | None, typer.Option(min=0, help="Few-shot examples before each question of a task.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N questions or sentences.")] = None,
    segment: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tokens read at a time. Default: the recipe's; of an imported model its context, 1024 at most."
        ),
    ] = None,
    memory: Annotated[
        int | None, typer.Option(min=0, help="Tokens of the past that attention reads. Default: the recipe's.")
    ] = None,
    clamp: Annotated[
        int | None, typer.Option(min=1, help="Largest relative distance; greater ones count as equal to it.")
    ] = None,
    same_length: Annotated[
        bool | None, typer.Option("--same-length/--any-length", help="Every token sees the same number of keys.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Streams evaluated in parallel; 1 gives the exact number.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Use only the first N tokens of the split.")] = None,
    beam: Annotated[int, typer.Option(min=1, help="Beam size of the search for translations.")] = 5,
    length_penalty: Annotated[
        float, typer.Option(help="Length penalty of translations: above 1 favours longer ones.")
    ] = 1.0,
    tokenize: Annotated[
        Literal["13a", "intl", "char", "none"], typer.Option(help="Tokenisation of sacrebleu's BLEU.")
    ] = "13a",
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="Number format of the forward passes.")
    ] = "float32",
    machine: MachineOptions = MachineOptions(),
    written: ResultOptions = ResultOptions(),
) -> None:
    """Evaluate a trained model: perplexity or BLEU on prepared data, or tasks of lm-evaluation-harness. No server."""
    from edgefront.core.errors import InvalidInput
    from edgefront.core.evaluation.given_model import package_of
    from edgefront.extras import need

    if (data is None) == (tasks is None):
        raise InvalidInput("evaluate needs either --data or --tasks", field="data", allowed="one of both")
    written.check()
    need("evaluate", "torch")
    machine.use_threads()
    if tasks is not None:
        need("evaluate --tasks", "eval")
    package = session.held.enter_context(package_of(model))
    result: dict[str, Any] = {"digest": package.architecture.digest, "dataset": package.facts.get("dataset")}
    if tasks is not None:
        from edgefront.core.evaluation.harness import evaluate_tasks

        names = [name.strip() for name in tasks.split(",") if name.strip()]
        result["tasks"] = evaluate_tasks(
            package, names, include=include, shots=shots, limit=limit, device=machine.device, rows=rows or 16
        )
    elif package.architecture.source is not None:
        assert data is not None
        from edgefront.core.evaluation.perplexity import first_token
        from edgefront.core.evaluation.translation import TranslationOptions, translate

        prepared = _prepared(package, data)
        chosen, end = prepared.split(split), package.tokenizer.eos
        if chosen.source is None or end is None:
            raise InvalidInput(
                f"{prepared.name} is not parallel text with an end token after each sentence",
                field="data",
                value=data,
                allowed="prepared parallel text",
            )
        with session.progress() as show:
            translated = translate(
                package.model(machine.device),
                chosen.source,
                chosen,
                package.tokenizer,
                device=machine.device,
                end=end,
                options=TranslationOptions(
                    begin=first_token(package.tokenizer, "pairs"),
                    precision=precision,
                    beam=beam,
                    length_penalty=length_penalty,
                    rows=rows or 32,
                    sentences=limit,
                    tokenize=tokenize,
                ),
                progress=partial(show, "translating"),
            )
        result |= {"split": split, "bleu": translated.bleu.score, "signature": translated.bleu.signature}
        result["sentences"] = len(translated.hypotheses)
    else:
        assert data is not None
        changes = {"segment": segment, "memory": memory, "clamp": clamp, "same_length": same_length, "rows": rows}
        result |= _perplexity(session, package, data, split, changes, max_tokens, precision, machine.device)
    put(session, result, written.output)


def _perplexity(
    session: Session,
    package: Package,
    data: str,
    split: str,
    changes: dict[str, Any],
    max_tokens: int | None,
    precision: Any,
    device: str,
) -> dict[str, Any]:
    from dataclasses import asdict

    from edgefront.core.evaluation.perplexity import Reading, evaluation_without_recipe, first_token, perplexity
    from edgefront.core.recipes.recipe import Recipe

    prepared, recipe = _prepared(package, data), package.recipe
    if recipe is None:
        recipe = Recipe(name="none", evaluation=evaluation_without_recipe(package.architecture, changes["memory"]))
    chosen = {name: value for name, value in changes.items() if value is not None}
    evaluation = recipe.overridden({"evaluation": chosen}).evaluation
    with session.progress() as show:
        score = perplexity(
            package.model(device),
            prepared.split(split),
            evaluation,
            device=device,
            precision=precision,
            reading=Reading(max_tokens, recipe.task == "sentences", first_token(package.tokenizer, recipe.task)),
            progress=partial(show, "reading"),
        )
    how = evaluation.model_dump(mode="json", include={"segment", "memory", "clamp", "same_length", "rows"})
    return {"split": split, "data_digest": prepared.digest, **asdict(score), "evaluation": how}


def _prepared(package: Package, data: str) -> Prepared:
    """The data set of that name, digest or folder; `InvalidInput` if its vocabulary is not the model's."""
    from edgefront.core.data.prepared.registry import find_prepared
    from edgefront.core.data.tokenizers.load import same_tokens
    from edgefront.core.errors import InvalidInput
    from edgefront.core.services.settings import Settings

    prepared = find_prepared(Settings().data_folder, data)
    own, expected = prepared.vocab_size, package.architecture.embedding.vocab_size
    if own <= expected and same_tokens(package.folder, prepared.folder):
        return prepared
    other = f"{own} tokens, and this model {expected}" if own != expected else f"other {own} tokens than this model"
    trained = package.facts.get("dataset") or "its training data"
    raise InvalidInput(
        f"{prepared.name} ({prepared.digest[:12]}) has {other}",
        field="data",
        value=data,
        allowed=f"data of the same vocabulary, prepared as {trained}; --vocabulary of `data prepare` takes the model's",
    )


def put(session: Session, result: dict[str, Any], output: Path | None) -> None:
    from edgefront.show.output import table

    if output is not None:
        write_json(output, result)

    def show() -> None:
        shown = table("", "value", prose=("value",))
        for name, value in _flat(result):
            shown.add_row(name, f"{value:.5g}" if isinstance(value, float) else str(value))
        session.out.print(shown)

    session.put(result, show)


def _flat(value: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    entries: list[tuple[str, Any]] = []
    for name, entry in value.items():
        if isinstance(entry, dict):
            entries += _flat(entry, f"{prefix}{name} ")
        elif entry is not None:
            entries.append((prefix + name, entry))
    return entries


def write_json(path: Path, result: dict[str, Any]) -> None:
    import json

    from edgefront.core.files import whole_file

    with whole_file(path) as file:
        file.write((json.dumps(result, indent=2, ensure_ascii=False) + "\n").encode())
