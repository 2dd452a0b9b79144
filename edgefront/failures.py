"""What the command says when it fails: one sentence for people, one JSON document with --json."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import typer

from edgefront import exits

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What typer raises for a wrong command line."""
_PIPE_ENDED = 1


def report(error: Exception, *, as_json: bool) -> int:
    """Prints an error that users can cause, on standard error, and returns its exit code. Anything else is a bug and is
    raised, with its traceback.
    """
    if isinstance(error, OSError) and error.errno == errno.EPIPE and not error.filename:
        _end_output()  # the reader has what it wanted
        return _PIPE_ENDED
    code, kind, detail, more = _described(error)
    if as_json:
        from edgefront.show.output import as_json as in_json

        sys.stderr.write(in_json({"kind": kind, "detail": detail, "exit_code": code, **more}, sys.stderr))
    else:
        _say(detail)
        allowed = more.get("allowed")
        if allowed and allowed not in detail:
            _say(allowed, label="allowed")
    return code


def _described(error: Exception) -> tuple[int, str, str, dict[str, Any]]:
    """Exit code, kind, sentence, and what else its JSON holds."""
    from edgefront.core.errors import EdgefrontError
    from edgefront.extras import advice

    if isinstance(error, EdgefrontError):
        return exits.exit_code(error), error.kind, error.detail, error.extra
    if isinstance(error, ModuleNotFoundError) and (message := advice(error)) is not None:
        return exits.ERROR, "missing-package", message, {}
    if isinstance(error, TimeoutError):
        return exits.ERROR, "timeout", str(error) or "it took too long", {}
    if isinstance(error, OSError):
        return exits.ERROR, "system", _of_system(error), {}
    if isinstance(error, _UsageError):
        return exits.USAGE, "usage", str(getattr(error, "format_message", error.__str__)()), {}
    raise error


def _of_system(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.filename:
        return f"{reason}: {os.fsdecode(error.filename)}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        _end_output()
        return f"{reason}: standard output, which is not complete"
    return reason


def _end_output() -> None:
    """Keeps the interpreter from writing to it again, and from complaining, when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str, label: str = "error") -> None:
    from edgefront.show.output import console

    text = console(stderr=True)
    text.print(f"[bold red]{label}:[/] ", end="")
    text.print(message, markup=False, soft_wrap=True)
