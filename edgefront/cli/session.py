"""Code that all commands share: the options --url, --key, --json and --wide, the client, and output of results."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from edgefront.client.show.output import LINE_INTERVAL_S, console, duration, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.client.client import Client
    from edgefront.client.show.table import Table
    from edgefront.core.schemas.service import IdentifiedKind

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="EDGEFRONT_URL",
        help="URL of the server. Default: the service that runs on this machine.",
        show_envvar=True,
        rich_help_panel="Connection",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="EDGEFRONT_KEY",
        help="API key. Prefer the variable EDGEFRONT_KEY: other users can see command lines.",
        show_envvar=True,
        rich_help_panel="Connection",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts; errors too.")]
Wide = Annotated[bool, typer.Option("--wide", help="Print whole identifiers and all columns, however wide.")]

# Seconds of retries. A person waits for the command, so they are few. Watching survives a server restart.
_PATIENCE_S = 3.0
_WATCH_PATIENCE_S = 60.0
_FULL_ID = re.compile(r"^[a-z]{3}_[0-9a-z]{26}$")


@dataclass
class Session:
    """One run of a command: the options that all commands share, the client of the server, and the output."""

    url: str | None = None
    key: str | None = None
    json: bool = False
    wide: bool = False
    resources: ExitStack = field(default_factory=ExitStack)
    """Resources that are closed when the command ends."""

    @cached_property
    def client(self) -> Client:
        return self._connect(_PATIENCE_S)

    @cached_property
    def watching_client(self) -> Client:
        """Returns a client that retries longer than `client` while the server is unavailable."""
        return self._connect(_WATCH_PATIENCE_S)

    def _connect(self, patience_s: float) -> Client:
        from edgefront.client.client import Client

        return self.resources.enter_context(Client(self.url, self.key, patience_s=patience_s))

    @cached_property
    def out(self) -> Console:
        return console(wide=self.wide)

    @cached_property
    def screen(self) -> Console:
        """Returns a console for live displays on standard output, as wide as the terminal."""
        return console()

    @cached_property
    def err(self) -> Console:
        return console(stderr=True)

    def identifier(self, kind: IdentifiedKind, text: str) -> str:
        """Returns the full identifier for `text`; the server resolves a shortened identifier."""
        return text if _FULL_ID.match(text) else self.client.identifier(kind, text)

    def say(self, text: str | None) -> None:
        """Prints a line of the result for people, without markup."""
        self.out.print(text, markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Prints a line for people on standard error; nothing with --json."""
        if not self.json:
            self.err.print(text, style="dim", markup=False, soft_wrap=True)

    @contextmanager
    def progress(self, *, in_bytes: bool = False) -> Iterator[Callable[[str, float, float | None], None]]:
        """Shows progress bars on a terminal, otherwise a line every ten seconds. Yields a function that updates a
        task's bar; arguments are the task's description, completed amount and total (None while unknown).
        """
        from rich import progress

        columns = (
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.DownloadColumn() if in_bytes else progress.TaskProgressColumn(),
            progress.TimeRemainingColumn(),
        )
        hidden = self.json or not self.err.is_terminal
        with progress.Progress(*columns, console=self.err, disable=hidden, transient=True) as bar:
            tasks: dict[str, progress.Task] = {}
            printed_at = time.monotonic()

            def update(description: str, completed: float, total: float | None) -> None:
                nonlocal printed_at
                if description not in tasks:
                    id_ = bar.add_task(description, total=total)
                    tasks[description] = next(task for task in bar.tasks if task.id == id_)
                task = tasks[description]
                bar.update(task.id, completed=completed, total=total)
                if hidden and total and time.monotonic() - printed_at >= LINE_INTERVAL_S:
                    printed_at = time.monotonic()
                    left = "" if task.time_remaining is None else f", about {duration(task.time_remaining)} left"
                    self.note(f"{description}: {task.percentage:.0f} %{left}")

            yield update

    def put(self, value: Any, shown: Callable[[], None] | Table) -> None:
        """Prints the result: `value` as JSON with --json, otherwise as the table `shown`, or by calling `shown`."""
        if self.json:
            print_json(value)
        elif callable(shown):
            shown()
        else:
            self.out.print(shown)


@dataclass(frozen=True)
class Identifies:
    """Marks a parameter that takes identifiers of objects of this kind: full, shortened, or `last` for the newest."""

    kind: IdentifiedKind


root_options = Session()
"""Options given before the command: `edgefront --url … job list`."""


def command(app: typer.Typer, name: str, *, server: bool = True) -> Callable[..., Any]:
    """Returns a decorator that registers a function as a command. The function's first parameter is the `Session`, in
    place of which the command gets the options that all commands share.

    A parameter whose type is a dataclass becomes one option per field; the fields are annotated like parameters.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True)
        shared = {"json": Json, "wide": Wide} | ({"url": Url, "key": Key} if server else {})
        added = [
            inspect.Parameter(
                option, inspect.Parameter.KEYWORD_ONLY, default=False if kind in (Json, Wide) else None, annotation=kind
            )
            for option, kind in shared.items()
        ]
        declared = list(own.parameters.values())[1:]
        groups: dict[str, Any] = {item.name: item.annotation for item in declared if is_dataclass(item.annotation)}
        flat = [option for item in declared for option in (_fields_of(item) if item.name in groups else [item])]
        parameters = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in flat] + added
        identifier_kinds = {
            item.name: mark.kind for item in flat for mark in get_args(item.annotation) if isinstance(mark, Identifies)
        }

        def run(**values: Any) -> None:
            session = Session(
                url=values.pop("url", None) or root_options.url,
                key=values.pop("key", None) or root_options.key,
                json=values.pop("json") or root_options.json,
                wide=values.pop("wide") or root_options.wide,
            )
            root_options.json = session.json  # the format of errors
            _check_text(values)
            try:
                for name, kind in identifier_kinds.items():
                    if isinstance(value := values[name], list | tuple):
                        values[name] = [session.identifier(kind, text) for text in value]
                    elif value is not None:
                        values[name] = session.identifier(kind, value)
                for name, options in groups.items():
                    values[name] = options(**{option.name: values.pop(option.name) for option in fields(options)})
                function(session, **values)
            finally:
                session.resources.close()

        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {item.name: item.annotation for item in parameters}
        app.command(name)(run)
        return function

    return register


def _fields_of(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """Returns one parameter for each field of the dataclass that is this parameter's type."""
    hints = get_type_hints(parameter.annotation, include_extras=True)
    return [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if option.default is MISSING else option.default,
            annotation=hints[option.name],
        )
        for option in fields(parameter.annotation)
    ]


def _check_text(values: Mapping[str, Any]) -> None:
    """Rejects text with bytes that are not UTF-8: file names may contain such bytes, but JSON and messages cannot."""
    for name, value in values.items():
        for text in value if isinstance(value, list | tuple) else (value,):
            if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
                raise typer.BadParameter(f"{name.replace('_', '-')}: this is not UTF-8 text")


def state_commands(
    app: typer.Typer, resource: str, argument: Any, methods: Mapping[str, str], name: str = "id"
) -> None:
    """Registers commands that change an object's state. `methods` maps methods of the client's `resource` to help
    texts.

    `argument` is the annotation of the argument that identifies the object; the output shows the object's field `name`.
    """
    for method, description in methods.items():

        def change_state(session: Session, identifier: Any, *, method: str) -> None:
            view = getattr(getattr(session.client, resource), method)(identifier)
            if view is None:
                session.put({f"{method}d": identifier}, lambda: session.note(f"{method}d {identifier}"))
                return
            session.put(view, lambda: session.say(f"{getattr(view, name)} {view.state}"))
            if note := getattr(view, "note", ""):
                session.note(note)

        bound = partial(change_state, method=method)
        by_name = partial(inspect.Parameter, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = inspect.Signature([by_name("session"), by_name("identifier", annotation=argument)])
        vars(bound).update(__signature__=signature, __name__=method, __doc__=description)
        command(app, method)(bound)


def group(description: str) -> typer.Typer:
    """Returns a group of commands. Called without a command, the group shows its help."""
    return typer.Typer(help=description, no_args_is_help=True)
