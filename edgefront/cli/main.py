"""The `edgefront` command."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer

from edgefront.cli import exits
from edgefront.cli.commands import (
    catalogue,
    compare,
    data,
    devices,
    evaluate,
    find,
    inherit,
    jobs,
    measure,
    models,
    proxy,
    quality,
    report,
    service,
    trainings,
)
from edgefront.cli.commands.base import Json, Key, Url, Wide, root_options
from edgefront.cli.commands.base import command as register

app = typer.Typer(
    name="edgefront",
    help="Finds the language model that fits a device.",
    epilog="Exit codes: " + " · ".join(f"{code} {meaning}" for code, meaning in exits.TABLE) + ".",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _name, _function in (("up", service.up), ("agent", service.agent), ("demo", service.demo)):
    register(app, _name, server=False)(_function)
register(app, "find")(find.find)
app.add_typer(jobs.app, name="job")
register(app, "frontier")(compare.frontier)
register(app, "compare")(compare.compare)
app.add_typer(report.app, name="report")
app.add_typer(models.app, name="model")
app.add_typer(inherit.app, name="inherit")
app.add_typer(trainings.app, name="train")
app.add_typer(catalogue.spaces, name="space")
app.add_typer(data.app, name="data")
app.add_typer(proxy.app, name="proxy")
app.add_typer(quality.app, name="quality")
register(app, "describe", server=False)(catalogue.describe)
register(app, "measure", server=False)(measure.measure)
register(app, "predict")(catalogue.predict)
register(app, "generate", server=False)(evaluate.generate)
register(app, "evaluate", server=False)(evaluate.evaluate)
register(app, "finetune", server=False)(evaluate.finetune)
app.add_typer(devices.app, name="device")
app.add_typer(devices.tokens, name="token")
app.add_typer(devices.keys, name="key")


def _version(asked: bool) -> None:
    if asked:
        from edgefront import __version__

        typer.echo(f"edgefront {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    url: Url = None,
    key: Key = None,
    json: Json = False,
    wide: Wide = False,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    root_options.url, root_options.key, root_options.json, root_options.wide = url, key, json, wide


@cache
def command() -> Callable[..., Any]:
    """All commands with their options, cached because typer builds them for every `app()`."""
    return typer.main.get_command(app)


def main() -> None:
    """Runs the command line and exits with one of the documented exit codes; `edgefront.__main__` does so after
    Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):  # a question mark stands for what their encoding lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    wants_json = "--json" in sys.argv[1:]
    try:
        # With --json, wrong usage is reported here as JSON: typer itself prints text.
        code = command()(standalone_mode=not wants_json) or exits.OK
    except typer.Abort:
        code = exits.ERROR
    except Exception as error:
        code = _report_error(error, as_json=wants_json)
    sys.exit(code)


_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What typer raises for a wrong command line."""
_PIPE_ENDED = 1


def _report_error(error: Exception, *, as_json: bool) -> int:
    """Prints an error that users can cause, on standard error, and returns its exit code. Anything else is a bug and is
    raised, with its traceback.
    """
    if isinstance(error, OSError) and error.errno == errno.EPIPE and not error.filename:
        _end_output()  # the reader has what it wanted
        return _PIPE_ENDED
    code, kind, detail, more = _described(error)
    if as_json:
        from edgefront.cli.show.output import as_json as in_json

        sys.stderr.write(in_json({"kind": kind, "detail": detail, "exit_code": code, **more}, sys.stderr))
    else:
        _say(detail)
        allowed = more.get("allowed")
        if allowed and allowed not in detail:
            _say(allowed, label="allowed")
    return code


def _described(error: Exception) -> tuple[int, str, str, dict[str, Any]]:
    """Exit code, kind, sentence, and what else its JSON holds."""
    from edgefront.cli.extras import advice
    from edgefront.core.common.errors import EdgefrontError

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
    from edgefront.cli.show.output import console

    text = console(stderr=True)
    text.print(f"[bold red]{label}:[/] ", end="")
    text.print(message, markup=False, soft_wrap=True)
