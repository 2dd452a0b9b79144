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
from edgefront.cli.session import Json, Key, Url, Wide, root_options
from edgefront.cli.session import command as register
from edgefront.client.extras import install_hint
from edgefront.client.show.output import console, json_text
from edgefront.core.common.errors import EdgefrontError

app = typer.Typer(
    name="edgefront",
    help="Finds the language model that fits a device.",
    epilog="Exit codes: " + " · ".join(f"{code} {meaning}" for code, meaning in exits.TABLE) + ".",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _name, _function in (
    ("up", service.up),
    ("agent", service.agent),
    ("demo", service.demo),
    ("backup", service.backup),
    ("restore", service.restore),
):
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


def _print_version(requested: bool) -> None:
    if requested:
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
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    root_options.url, root_options.key, root_options.json, root_options.wide = url, key, json, wide


@cache
def command() -> Callable[..., Any]:
    """Returns all commands with their options, cached because typer rebuilds the commands at every `app()`."""
    return typer.main.get_command(app)


def main() -> None:
    """Runs the command line and exits with a documented exit code. `edgefront.__main__` handles Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):  # a character that the encoding lacks becomes a question mark
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
"""The exception that typer raises for a wrong command line."""


def _report_error(error: Exception, *, as_json: bool) -> int:
    """Prints an error on standard error and returns its exit code, if users can cause this error. Raises any other
    error (a bug) again.
    """
    if isinstance(error, OSError) and error.errno == errno.EPIPE and not error.filename:
        _discard_output()
        return exits.ERROR
    code, kind, detail, extra = _describe(error)
    if as_json:
        sys.stderr.write(json_text({"kind": kind, "detail": detail, "exit_code": code, **extra}, sys.stderr))
    else:
        lines = {"error": detail}
        if (allowed := extra.get("allowed")) and allowed not in detail:
            lines["allowed"] = allowed
        stderr = console(stderr=True)
        for label, text in lines.items():
            stderr.print(f"[bold red]{label}:[/] ", end="")
            stderr.print(text, markup=False, soft_wrap=True)
    return code


def _describe(error: Exception) -> tuple[int, str, str, dict[str, Any]]:
    """Returns the exit code, the kind, the message, and the further JSON fields of an error."""
    if isinstance(error, EdgefrontError):
        return exits.exit_code(error), error.kind, error.detail, error.extra
    if isinstance(error, ModuleNotFoundError) and (message := install_hint(error)) is not None:
        return exits.ERROR, "missing-package", message, {}
    if isinstance(error, TimeoutError):
        return exits.ERROR, "timeout", str(error) or "it took too long", {}
    if isinstance(error, OSError):
        return exits.ERROR, "system", _system_message(error), {}
    if isinstance(error, _UsageError):
        return exits.USAGE, "usage", str(getattr(error, "format_message", error.__str__)()), {}
    raise error


def _system_message(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.filename:
        return f"{reason}: {os.fsdecode(error.filename)}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        _discard_output()
        return f"{reason}: standard output, which is not complete"
    return reason


def _discard_output() -> None:
    """Redirects standard output to the null device, so that the interpreter's final flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
