"""`edgefront generate`"""

from __future__ import annotations

from typing import Annotated

import typer

from edgefront.commands.base import Session, command
from edgefront.commands.options import MachineOptions, Trained


def add_to(app: typer.Typer) -> None:
    command(app, "generate", server=False)(generate)


def generate(
    session: Session,
    model: Trained,
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
        int | None, typer.Option(min=0, help="Tokens of the past to attend to. Default: as in its evaluation.")
    ] = None,
    chat: Annotated[
        bool | None,
        typer.Option(
            help="Put the prompt into the model's chat template, and write the answer. Default: where it has one."
        ),
    ] = None,
    special: Annotated[
        bool,
        typer.Option(
            "--special",
            help="Names of special tokens in the prompt mean these tokens, as in a prompt with <|im_start|>.",
        ),
    ] = False,
    stop_at_end: Annotated[bool, typer.Option(help="Stop at the token that ends a line or document.")] = True,
    machine: MachineOptions = MachineOptions(),
) -> None:
    """Generate text with a trained model, or its answer to the prompt where it chats. Needs no server."""
    import sys

    from edgefront.core.evaluation.given_model import package_of
    from edgefront.extras import need

    need("generate", "torch")
    package = session.held.enter_context(package_of(model))
    machine.use_threads()
    from edgefront.core.evaluation.generate import Sampling, TextOptions, generate_text

    text = sys.stdin.read() if prompt == "-" else prompt
    sampling = Sampling(temperature, top_k, top_p, seed)

    if chat is None:  # a prompt with special tokens, or none, is one that is continued
        tokenizer = package.tokenizer_if_any
        chat = bool(text) and not special and tokenizer is not None and tokenizer.chat_template is not None
    # Printed with the first text, so that an error comes before it.
    before = "" if package.architecture.source or chat else text

    def put(piece: str) -> None:
        nonlocal before
        sys.stdout.write(before + piece)
        sys.stdout.flush()
        before = ""

    generated = generate_text(
        package,
        text,
        tokens,
        sampling,
        TextOptions(memory, stop_at_end, chat, special),
        device=machine.device,
        on_text=None if session.json else put,
    )
    if not session.json:
        put("\n")
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
