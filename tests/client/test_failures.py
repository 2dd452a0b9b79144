"""What the command says when it fails, and what it leaves behind."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import edgefront, environment
from running_client import Running

from edgefront.cli import exits


@pytest.mark.parametrize(
    ("line", "code", "kind"),
    [
        (("job", "show", "nothing"), exits.NOT_FOUND, "not-found"),
        (("describe",), exits.USAGE, "usage"),
        (("job", "list", "--limit", "many"), exits.USAGE, "usage"),
        (("key", "create", "<b>"), exits.REFUSED, "invalid-input"),
        (("job", "submit", "no/such/file.json"), exits.ERROR, "system"),
        (("--key", "efk_wrong", "job", "list"), exits.NO_ACCESS, "unauthenticated"),
    ],
)
def test_with_json_an_error_is_json(line: tuple[str, ...], code: int, kind: str, running: Running) -> None:
    for given in (("--json", *line), (*line, "--json")):
        done = running.command(*given, code=code)
        assert done.stdout == ""
        said = json.loads(done.stderr)
        assert (said["kind"], said["exit_code"]) == (kind, code)
        assert said["detail"]


def test_a_terminal_that_is_not_utf8_gets_plain_characters(running: Running) -> None:
    env = environment(running.home) | {"PYTHONIOENCODING": "ascii", "COLUMNS": "120"}

    def said(*arguments: str) -> str:
        line = [sys.executable, "-m", "edgefront", *arguments]
        return subprocess.run(line, env=env, capture_output=True, check=True).stdout.decode("ascii")

    assert "finished" in said("job", "show", running.job.id)
    assert "\u03c1" in json.loads(said("job", "list", "--json"))[0]["proxy_trust"]["sentence"]


def test_what_is_written_replaces_nothing_without_force(running: Running, tmp_path: Path) -> None:
    point = running.client.frontier(running.job.id).points[0]
    file = tmp_path / "model.json"
    for line in (("model", "build", "gpt2-small"), ("model", "download", point.id)):
        line = (*line, "--format", "architecture", "--output", str(file))
        file.write_text("mine")
        refused = running.command(*line, code=exits.REFUSED)
        assert str(file) in refused.stderr
        assert "--force" in refused.stderr
        assert file.read_text() == "mine"
        assert running.command(*line, "--force").returncode == exits.OK
        assert file.read_text() != "mine"
    assert os.listdir(tmp_path) == ["model.json"]


def test_the_same_download_again_keeps_the_file(running: Running, tmp_path: Path) -> None:
    point = running.client.frontier(running.job.id).points[0]
    line = ("model", "download", point.id[-6:], "--format", "architecture", "--output", str(tmp_path))
    first = running.command(*line).stdout.strip()
    before = Path(first).stat().st_mtime_ns
    assert running.command(*line).stdout.strip() == first
    assert Path(first).stat().st_mtime_ns == before


def test_a_full_disk_is_named(running: Running, tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "edgefront", "job", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(running.home),
        )
    assert done.returncode == exits.ERROR
    assert done.stderr == "error: No space left on device: standard output, which is not complete\n"
    built = edgefront("model build gpt2-small --format architecture --output /dev/full", code=exits.SERVER_AWAY)
    assert "/dev/full could not be written" in built.stderr
    point = running.client.frontier(running.job.id).points[0]
    line = ("model", "download", point.id, "--format", "architecture", "--output", "/dev/full", "--force")
    assert running.command(*line).returncode == exits.REFUSED
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_a_pipe_whose_reader_left_is_named(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(
        [sys.executable, "-m", "edgefront", "model", "build", "gpt2-small", "-o", str(pipe), "--format", "safetensors"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(None),
    ) as building:
        with pipe.open("rb") as reader:
            reader.read(10)
        _, said = building.communicate(timeout=120)
    assert building.returncode == exits.ERROR
    assert str(pipe) in said
    assert "Traceback" not in said
    assert os.listdir(tmp_path) == ["pipe"]


def test_what_cannot_work_is_refused_when_it_is_submitted(running: Running) -> None:
    for line, words in (
        (("train", "submit", "--architecture", "gpt2-small", "--data", "wikitext-103"), "edgefront data prepare"),
        (("train", "submit", "--architecture", "gpt2-small", "--device", "cuda"), "requires.device"),
        (("job", "submit", "--narrow", "d_model=128..512:7"), "in steps of 64"),
        (("job", "submit", "--target", f"{running.board}:tensorrt"), "onnxruntime"),
        (("job", "submit", "--target", "no such board"), running.board),
        (("device", "show", "no such board"), running.board),
        (("job", "submit", "--set", "foo=3"), "iterations"),
        (("train", "submit", "--architecture", "gpt2-small", "--set", "stepz=3"), "do you mean steps?"),
        (("predict", "gpt2-small", "--protocol", "foo=3"), "sequence_length"),
        (("describe", "gpt2-smal"), "gpt2-small"),
    ):
        done = running.command(*line)
        assert done.returncode in (exits.REFUSED, exits.NOT_FOUND), done.stdout
        assert words in done.stderr


def test_a_drained_device_is_called_drained(running: Running) -> None:
    running.client.devices.drain(running.board)
    try:
        refused = running.command("job submit", code=exits.REFUSED)
        assert f"{running.board} is draining" in refused.stderr
        waits = running.command("job submit --json", "--target", running.board)
        job = json.loads(waits.stdout)
        assert "is draining" in job["targets"][0]["note"]
        running.client.jobs.cancel(job["id"])
    finally:
        running.client.devices.activate(running.board)
