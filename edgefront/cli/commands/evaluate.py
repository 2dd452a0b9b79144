"""`edgefront evaluate`, `finetune` and `generate`: commands for trained models."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edgefront.cli.commands.options import MachineOptions, TrainedModelArgument
from edgefront.cli.session import Session
from edgefront.client.extras import need
from edgefront.client.show.table import Table
from edgefront.core.common.errors import InvalidInput

if TYPE_CHECKING:
    from edgefront.core.data.prepared.prepared import Prepared
    from edgefront.core.training.evaluation.package import Package


def evaluate(
    session: Session,
    model: TrainedModelArgument,
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
        int | None, typer.Option(min=0, help="Past tokens that attention reads. Default: the recipe's.")
    ] = None,
    clamp: Annotated[
        int | None, typer.Option(min=1, help="Maximum relative distance; larger ones are clamped to it.")
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
) -> None:
    """Evaluate a trained model: perplexity or BLEU on prepared data, or tasks of lm-evaluation-harness. No server."""
    from edgefront.core.training.evaluation.given_model import package_of

    if (data is None) == (tasks is None):
        raise InvalidInput("evaluate needs either --data or --tasks", field="data", allowed="one of both")
    need("evaluate", "torch")
    machine.use_threads()
    if tasks is not None:
        need("evaluate --tasks", "eval")
    package = session.resources.enter_context(package_of(model))
    result: dict[str, Any] = {"digest": package.architecture.digest, "dataset": package.facts.get("dataset")}
    if tasks is not None:
        from edgefront.core.training.evaluation.harness import evaluate_tasks

        names = [name.strip() for name in tasks.split(",") if name.strip()]
        result["tasks"] = evaluate_tasks(
            package, names, include=include, shots=shots, limit=limit, device=machine.device, rows=rows or 16
        )
    elif package.architecture.source is not None:
        assert data is not None
        from edgefront.core.training.evaluation.perplexity import first_token
        from edgefront.core.training.evaluation.translation import translate

        prepared = _prepared(package, data)
        pairs, end = prepared.split(split), package.tokenizer.eos
        if pairs.source is None or end is None:
            raise InvalidInput(
                f"{prepared.name} is not parallel text with an end token after each sentence",
                field="data",
                value=data,
                allowed="prepared parallel text",
            )
        with session.progress() as update:
            translated = translate(
                package.model(machine.device),
                pairs.source,
                pairs,
                package.tokenizer,
                device=machine.device,
                end=end,
                begin=first_token(package.tokenizer, "pairs"),
                precision=precision,
                beam=beam,
                length_penalty=length_penalty,
                rows=rows or 32,
                sentences=limit,
                tokenize=tokenize,
                progress=partial(update, "translating"),
            )
        result |= {"split": split, "bleu": translated.bleu.score, "signature": translated.bleu.signature}
        result["sentences"] = len(translated.hypotheses)
    else:
        assert data is not None
        from edgefront.core.training.evaluation.perplexity import evaluation_without_recipe, first_token, perplexity
        from edgefront.core.training.recipes.recipe import Recipe

        prepared, recipe = _prepared(package, data), package.recipe
        if recipe is None:
            recipe = Recipe(name="none", evaluation=evaluation_without_recipe(package.architecture, memory))
        options = {"segment": segment, "memory": memory, "clamp": clamp, "same_length": same_length, "rows": rows}
        overrides = {name: value for name, value in options.items() if value is not None}
        evaluation = recipe.overridden({"evaluation": overrides}).evaluation
        with session.progress() as update:
            score = perplexity(
                package.model(machine.device),
                prepared.split(split),
                evaluation,
                device=machine.device,
                precision=precision,
                max_tokens=max_tokens,
                sentences=recipe.task == "sentences",
                begin=first_token(package.tokenizer, recipe.task),
                progress=partial(update, "reading"),
            )
        settings = evaluation.model_dump(mode="json", include=set(options))
        result |= {"split": split, "data_digest": prepared.digest, **asdict(score), "evaluation": settings}
    _put(session, result)


def _prepared(package: Package, data: str) -> Prepared:
    """Returns data by name, digest or folder. Raises `InvalidInput` if its vocabulary is not the model's."""
    from edgefront.core.data.prepared.prepared import find_prepared
    from edgefront.core.data.tokenizers.load import same_tokens
    from edgefront.core.services.settings import Settings

    prepared = find_prepared(Settings().data_folder, data)
    own, expected = prepared.vocab_size, package.architecture.embedding.vocab_size
    if own <= expected and same_tokens(package.folder, prepared.folder):
        return prepared
    difference = f"{own} tokens, and this model {expected}"
    if own == expected:
        difference = f"{own} tokens, as this model, but not the same ones"
    trained = package.facts.get("dataset") or "its training data"
    raise InvalidInput(
        f"{prepared.name} ({prepared.digest[:12]}) has {difference}",
        field="data",
        value=data,
        allowed=f"data with the model's vocabulary, prepared like {trained} (`data prepare --vocabulary`)",
    )


def _put(session: Session, result: dict[str, Any], json_only: dict[str, Any] | None = None) -> None:
    """Prints the result as a table; with --json as JSON, with the fields of `json_only` added."""

    table = Table("", "value", wrap=("value",))
    for name, value in _flat(result):
        table.add_row(name, f"{value:.5g}" if isinstance(value, float) else str(value))
    session.put(result | (json_only or {}), table)


def _flat(value: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    entries: list[tuple[str, Any]] = []
    for name, entry in value.items():
        if isinstance(entry, dict):
            entries += _flat(entry, f"{prefix}{name} ")
        elif entry is not None:
            entries.append((prefix + name, entry))
    return entries


def finetune(
    session: Session,
    model: TrainedModelArgument,
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
) -> None:
    """Fine-tune an encoder (BERT) on local files and score it: classes, numbers or answers. Needs no server."""
    from edgefront.core.training.evaluation.given_model import package_of

    need("finetune", "torch")
    machine.use_threads()
    package = session.resources.enter_context(package_of(model))
    from edgefront.core.training.finetune.finetune import FineTuning
    from edgefront.core.training.finetune.tasks import answer_questions, classify, read_questions, read_table

    settings = FineTuning.parse(
        {"epochs": epochs, "rows": rows, "lr": lr, "max_length": max_length, "seed": seed, "precision": precision}
    )
    body = package.model(machine.device)
    predictions: Any
    with session.progress() as update:

        def on_step(done: int, total: int, _: float) -> None:
            update("tuning", done, total)

        if train.suffix == ".json":
            questions = [read_questions(path) for path in (train, test)]
            answered = answer_questions(
                body, package.tokenizer, questions[0], questions[1], settings, device=machine.device, progress=on_step
            )
            scores, predictions = answered.scores, answered.predictions
        else:
            tables = [read_table(path, text=text, pair=pair, label=label) for path in (train, test)]
            classified = classify(
                body, package.tokenizer, tables[0], tables[1], settings, device=machine.device, progress=on_step
            )
            scores, predictions = classified.scores, classified.predictions
    result = {"digest": package.architecture.digest, "settings": settings.model_dump(mode="json"), "scores": scores}
    _put(session, result, {"predictions": predictions})


def generate(
    session: Session,
    model: TrainedModelArgument,
    prompt: Annotated[
        str,
        typer.Option(help="Start of the text; for a translation model, the text to translate. - reads standard input."),
    ] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Maximum number of tokens to generate.")] = 100,
    temperature: Annotated[
        float, typer.Option(min=0, help="Sampling temperature; 0 takes the most likely token each time.")
    ] = 0.8,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from the K most likely tokens only.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample from the most likely tokens with this total probability only.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=(1 << 63) - 1, help="Seed of the sampling.")] = 0,
    memory: Annotated[
        int | None, typer.Option(min=0, help="Past tokens that attention reads. Default: as in its evaluation.")
    ] = None,
    chat: Annotated[
        bool | None,
        typer.Option(help="Put the prompt into the chat template and write the answer. Default: if the model has one."),
    ] = None,
    special: Annotated[
        bool,
        typer.Option(
            "--special",
            help="Read names of special tokens in the prompt, such as <|im_start|>, as these tokens.",
        ),
    ] = False,
    stop_at_end: Annotated[bool, typer.Option(help="Stop at the token that ends a line or document.")] = True,
    machine: MachineOptions = MachineOptions(),
) -> None:
    """Generate text with a trained model, or a chat model's answer to the prompt. Needs no server."""
    from edgefront.core.training.evaluation.given_model import package_of

    need("generate", "torch")
    package = session.resources.enter_context(package_of(model))
    machine.use_threads()
    from edgefront.core.training.evaluation.generate import Sampling, generate_text

    text = sys.stdin.read() if prompt == "-" else prompt
    sampling = Sampling(temperature, top_k, top_p, seed)

    if chat is None:  # continues an empty prompt and a prompt with special tokens
        tokenizer = package.tokenizer_if_any
        chat = bool(text) and not special and tokenizer is not None and tokenizer.chat_template is not None
    # The prompt is printed with the first generated text, so that an error comes before any output.
    pending = "" if package.architecture.source or chat else text

    def write(piece: str) -> None:
        nonlocal pending
        sys.stdout.write(pending + piece)
        sys.stdout.flush()
        pending = ""

    generated = generate_text(
        package,
        text,
        tokens,
        sampling,
        memory=memory,
        stop_at_end=stop_at_end,
        chat=chat,
        special=special,
        device=machine.device,
        on_text=None if session.json else write,
    )
    if not session.json:
        write("\n")
    result = {
        "digest": package.architecture.digest,
        "prompt": text,
        "chat": chat,
        "text": generated.text,
        "tokens": len(generated.tokens),
        "prompt_tokens": generated.prompt_tokens,
        "ended": generated.ended,
        "seed": seed,
    }
    session.put(
        result, lambda: session.note(f"{len(generated.tokens)} tokens, stopped by {generated.ended}, seed {seed}")
    )
