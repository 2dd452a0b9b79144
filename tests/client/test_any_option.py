"""Any value of any option ends in an answer or in one clear error: the options are those of the command itself."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running_client import Running

from edgefront.cli import exits
from edgefront.cli import main as cli

# What starts processes that stay, or measures for seconds, gets a value that ends it before.
ENDS: dict[str, tuple[str, ...]] = {
    "up": ("--host=no such host",),
    "find": ("--device=no such device",),
}
LEFT_OUT = {"agent", "demo"}
"""These have no such option: an agent keeps connecting, and a demo begins at once."""

# None of them is a part of an identifier, so that nothing real is deleted or revoked.
TEXTS = ["", " ", "<b>", "-", "=", "a=", "=b", "a=1..", "n_layer=2..x", "n_layer=1..2:0", "a=1 a=2", "é=ß", "[", "%s"]
TEXTS += [
    '{"a": 1}',
    "class=",
    ":",
    "x:onnxruntime:99999999999999999999",
    "@",
    "a/../b",
    "..",
    "😀",
    "\u202e",
    "\udcff",
]
TEXTS += ["x" * 5000, "1e400"]
FILES = ["", ".", "object.json", "list.json", "binary.json", "no/such/file.json", "new.png", "x" * 5000, "a\nb.svg"]
NUMBERS = ["", "x", "0", "-1", "1", "2", "100000000", "99999999999999999999", "1.5", "nan", "inf", "-inf", "1e400"]


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    def below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        for name, child in getattr(command, "commands", {}).items():
            if hasattr(child, "commands"):
                yield from below(child, (*words, name))
            elif (*words, name)[0] not in LEFT_OUT:
                yield (*words, name), child

    return below(typer.main.get_command(cli.app), ())


COMMANDS = dict(commands())


def values(parameter: Any) -> st.SearchStrategy[str]:
    kind = str(parameter.type_descriptor.annotation)
    if "Path" in kind:
        return st.sampled_from(FILES)
    if "int" in kind or "float" in kind:
        return st.sampled_from(NUMBERS) | st.integers().map(str) | st.floats().map(str)
    choices = [str(choice) for choice in parameter.type_descriptor.choices or ()]
    texts = st.sampled_from(TEXTS) | st.text(st.characters(exclude_characters="\0"), max_size=20).map("<{}".format)
    return st.sampled_from(choices) | texts if choices else texts


@st.composite
def lines(draw: st.DrawFn, words: tuple[str, ...]) -> list[str]:
    """A command line: some of the command's options, each with any value, and its arguments."""
    given, arguments = [], []
    for parameter in COMMANDS[words].params:
        if parameter.name == "help":
            continue
        if parameter.param_type_name == "argument":
            if parameter.required or draw(st.booleans()):
                arguments.append(draw(values(parameter)))
        elif draw(st.integers(0, 4)) == 0:
            flag = draw(st.sampled_from([*parameter.opts, *parameter.secondary_opts]))
            given += [flag] if parameter.is_flag else [flag, draw(values(parameter))]
    return [*words, *given, *ENDS.get(words[0], ()), "--", *arguments]


def run(line: Sequence[str], encoding: str) -> tuple[int, str, str]:
    """Exit code, standard output and error of the command in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="") for _ in range(2))
    before = sys.argv
    sys.argv = ["edgefront", *line]
    try:
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        sys.argv = before
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(encoding))  # type: ignore[attr-defined]
    return int(ended.value.code or 0), texts[0], texts[1]


@pytest.fixture
def here(running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own folder for all that is written, and the service for all that is asked."""
    folder = tmp_path / "deep" / "here"
    folder.mkdir(parents=True)
    (folder / "object.json").write_text('{"a": 1}', encoding="utf-8")
    (folder / "list.json").write_text("[1]", encoding="utf-8")
    (folder / "binary.json").write_bytes(b"\xff\xfe\x00")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEFRONT_HOME", str(running.home))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    return folder


@pytest.mark.hypothesis
@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_any_value_of_any_option_is_answered(words: tuple[str, ...], here: Path) -> None:
    codes = {code for code, _ in exits.TABLE}

    @settings(max_examples=settings.default.max_examples // 5, suppress_health_check=list(HealthCheck))
    @given(lines(words), st.sampled_from(["utf-8", "ascii"]))
    def check(line: list[str], encoding: str) -> None:
        code, out, err = run(line, encoding)
        assert code in codes
        assert "Traceback" not in err
        if code in (exits.OK, exits.NOTHING_FITS) or (out and words[0] == "job"):
            return  # an answer; that of an estimate lists what would be refused
        if "--json" in line:
            said = json.loads(err)
            assert said["detail"]
            assert said["exit_code"] == code
        else:
            assert err.strip()

    check()


@pytest.mark.parametrize(
    "line",
    [
        ("token", "create", "--uses", "100000000"),
        ("token", "create", "--minutes", "1000000000"),
        ("token", "create", "--name", ""),
        ("key", "create", "<b>"),
        ("key", "create", "anna", "--days", "1000000000"),
        ("key", "create", "anna", "--owner", ""),
        ("device", "reenrol", "BOARD", "--minutes", "99999999999999999999"),
        ("job", "list", "--limit", "99999999999999999999"),
        ("job", "show", ""),
        ("job", "show", "a/../b"),
        ("job", "submit", "--seed", "99999999999999999999"),
        ("owner", "set", "anna", "--running-jobs", "99999999999999999999"),
        ("generate", "model", "--threads", "99999999999999999999"),
    ],
    ids=" ".join,
)
def test_values_out_of_range_name_the_field(line: tuple[str, ...], running: Running, here: Path) -> None:
    code, out, err = run([running.board if word == "BOARD" else word for word in line], "utf-8")
    assert code in (exits.USAGE, exits.REFUSED, exits.NOT_FOUND), err
    assert out == ""
    assert "Traceback" not in err
