"""The options of a generation as fields of the measurement protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefront.core.errors import ProtocolError


def generation_fields(
    mode: str | None, lengths: Mapping[str, int | None], **options: int | str | None
) -> dict[str, Any]:
    """Fields of the protocol, those that are given alone. `options` are `prompt`, `new`, `context` and `latency`: any
    of them makes the mode generate.

    `lengths` are the fields `sequence_length` and `memory_length`, of which a generation has other names.
    `ProtocolError` that names the option where the two do not go together.
    """
    given = {name: value for name, value in options.items() if value is not None}
    kept = {name: value for name, value in lengths.items() if value is not None}
    if mode not in (None, "generate") and given:
        option = next(iter(given))
        raise ProtocolError(
            f"--{option} is of mode generate, not of {mode}", field=option, value=given[option], allowed="mode generate"
        )
    if mode != "generate" and not given:
        return kept if mode is None else {"mode": mode, **kept}
    if kept:
        field, option = next(
            (field, option)
            for field, option in (("sequence_length", "--prompt"), ("memory_length", "--context"))
            if field in kept
        )
        raise ProtocolError(
            f"{field}: a generation is given by {option}", field=field, value=kept[field], allowed=option
        )
    names = {"prompt": "sequence_length", "new": "new_tokens", "latency": "latency"}
    return {"mode": "generate", **{names[option]: value for option, value in given.items() if option in names}} | (
        {"memory_length": given["context"]} if isinstance(given.get("context"), int) else {}
    )


def contexts(text: str | None) -> list[int]:
    """`0,1024,4096` as rising numbers of tokens; [0] without a text. `ProtocolError` for anything else."""
    if text is None:
        return [0]
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        allowed = "numbers of tokens from 0, with commas between them: 0,1024,4096"
        raise ProtocolError(
            f"--context {text!r} is not a list of lengths", field="context", value=text, allowed=allowed
        )
    return sorted({int(part) for part in parts})
