"""The command without a server: help, describe, spaces, exit codes, and how little it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import edgefront, environment

from edgefront.cli import exits
from edgefront.core.architectures.catalogue import spaces
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.formatting import layers_in_words, stack_in_words
from edgefront.core.architectures.models import named_model, named_models

HEAVY = ("torch", "onnxruntime", "onnx", "sqlalchemy", "fastapi", "celery", "uvicorn", "matplotlib", "numpy")


def loaded_after(*arguments: str) -> set[str]:
    """The heavy packages that a run of the command has imported at its end."""
    program = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('LOADED', *[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr))\n"
        "from edgefront.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=environment(None)
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("LOADED")]
    return set(line.split()[1:])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("job", "submit", "--help"),
        ("--version",),
        ("space", "list", "--json"),
    ],
    ids=" ".join,
)
def test_commands_without_a_server_import_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert loaded_after(*arguments) == set()


def test_describe_loads_numpy_alone() -> None:
    assert loaded_after("describe", "gpt2-small", "--json") <= {"numpy"}


def test_describe_prints_exactly_the_costs_and_the_options(tmp_path: Path) -> None:
    model = named_models()["gpt2-small"]
    file = tmp_path / "mine.json"
    file.write_text(model.architecture.canonical_json, encoding="utf-8")
    options = ("--sequence-length", "64", "--batch", "2", "--dtype", "float16")
    done = edgefront("describe --json", str(file), *options, code=exits.OK)
    expected = costs(model.architecture, CostOptions(sequence_length=64, batch=2, dtype="float16")).model_dump()
    output = json.loads(done.stdout)
    assert output.pop("quality")["law"] == "own-data-gpt2"
    assert output == expected


def test_describe_for_people_names_its_defaults() -> None:
    done = edgefront("describe gpt2-small", code=exits.OK)
    assert "85,056,000" in done.stdout
    assert "forward, sequence length 192, batch 1, logits all, float32" in done.stderr
    after = edgefront("describe par-base --mode decode --memory-length 640")
    assert "decode, sequence length 1 after 640, batch 1, logits all, float32" in after.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("describe", "no-such-model"), exits.NOT_FOUND, "edgefront model list"),
        (("describe", "gpt2-small", "--batch", "0"), exits.USAGE, "--batch"),
        (("describe", "gpt2-small", "--dtype", "int3"), exits.REFUSED, "int3"),
        (("describe",), exits.USAGE, "MODEL"),
        (("jobb",), exits.USAGE, "jobb"),
        (("job", "list"), exits.SERVER_AWAY, "edgefront up"),
        (("space", "show", "lts-gpt2", "--narrow", "depth=2"), exits.REFUSED, "n_layer"),
        (("space", "show", "lts-gpt2", "--narrow", "n_layer"), exits.REFUSED, "n_layer=2..6"),
        (("space", "show", "lts-gpt2", "--narrow", "n_layer=900"), exits.REFUSED, "900"),
        (("--url", "nonsense", "job", "list"), exits.REFUSED, "nonsense"),
    ],
)
def test_exit_codes_and_messages(arguments: tuple[str, ...], code: int, said: str, tmp_path: Path) -> None:
    done = edgefront(*arguments, home=tmp_path, code=code)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_every_exit_code_is_in_the_help() -> None:
    shown = " ".join(edgefront("--help").stdout.split())
    for code, _ in exits.TABLE:
        assert f"{code} " in shown.partition("Exit codes:")[2]


def test_a_server_that_has_ended_is_reported(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    record = {"url": "http://127.0.0.1:9", "pid": ended.pid, "version": "0"}
    (tmp_path / "server.json").write_text(json.dumps(record), encoding="utf-8")
    done = edgefront("job list", home=tmp_path, code=exits.SERVER_AWAY)
    assert "has ended" in done.stderr


def test_spaces_for_people_and_for_scripts() -> None:
    listed = edgefront("space list").stdout
    assert all(name in listed for name in spaces())
    shown = edgefront("space show hybrid", "--narrow", "n_block=2..6 kind=attention,srupp,identity", code=exits.OK)
    assert "attention, srupp, identity" in shown.stdout
    assert "proxy: Decoder parameters cannot compare kinds of blocks." in shown.stdout
    assert "proxy:" not in edgefront("space show lts-transformer-xl").stdout
    (described,) = [load for load in json.loads(edgefront("space list --json").stdout) if load["name"] == "par-32"]
    assert described["caveat"] == spaces()["par-32"].caveat
    assert int(described["size"]) == spaces()["par-32"].size()
    less = json.loads(edgefront("space show par-32 --json --narrow min_attention_percent=0").stdout)
    assert int(less["size"]) == 2**33 - 2


def test_stacks_in_words() -> None:
    attention, inner = {"kind": "attention", "n_head": 8}, {"kind": "feed_forward", "d_inner": 512}
    recurrent = {"kind": "srupp", "d_attn": 64}
    assert stack_in_words([attention, inner] * 3) == "3 layers"
    assert stack_in_words([attention, inner, inner]) == "1 attention, 2 feed-forward"
    assert stack_in_words([recurrent, {**recurrent, "attends": "none"}]) == "1 SRU++, 1 SRU++ without attention"


def test_a_layer_is_a_mixer_and_the_feed_forward_after_it() -> None:
    attention, inner, conv = ({"kind": kind} for kind in ("attention", "feed_forward", "short_conv"))
    assert layers_in_words([conv, inner, attention, inner]) == "2 layers"
    assert layers_in_words([attention, attention, inner, inner, {"kind": "identity"}]) == "3 layers"
    assert layers_in_words([{"kind": "srupp"}] * 2) == "2 layers"
    for name, said in (("lfm2-350m", "16 layers"), ("smollm2-135m", "30 layers"), ("gpt2-small", "12 layers")):
        assert layers_in_words(named_model(name).architecture.canonical["blocks"]) == said
