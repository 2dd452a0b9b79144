"""The command against the running service: as people and as scripts use it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import edgefront, environment
from running_client import BOARD, SMALL, Running

from edgefront.cli import exits
from edgefront.cli.commands.devices import only_device
from edgefront.client.local import LocalServer, is_starting
from edgefront.client.show.output import megabytes, milliseconds
from edgefront.core.common.errors import InvalidInput


def test_jobs_and_frontier_for_people_and_for_scripts(running: Running) -> None:
    job = running.job.id
    assert job in running.show("job list")
    assert job in [item["id"] for item in running.read("job list --state finished")]
    assert "hypervolume" in running.show("job show", job)
    assert "ranked 200 fully trained models of this space" in running.show("job show", job)
    assert running.read("job show", job)["state"] == "finished"
    view = running.read("frontier --target board", job)
    shown = running.show("frontier", job)
    assert all(point["id"] in shown for point in view["points"])
    assert "baseline, 3 layers" in shown
    assert view["summary"] in shown
    fastest = min(point["latency_ms"] for point in view["points"])
    (limited,) = running.read("frontier", job, "--max-latency-ms", str(fastest + 1e-6))
    assert len(limited["points"]) == 1


def test_submit_from_flags_watch_and_steer(running: Running) -> None:
    flags = [
        *("job", "submit", "--name", "flags", "--target", f"class={BOARD}:pytorch"),
        *("--narrow", "n_layer=2..3 d_model=128,192 d_inner=256..640:64", "--seed", "5", "--candidates", "14"),
        *("--algorithm", "lts", "--set", "population=10", "--max-memory-mb", "5000", "--sequence-length", "64"),
    ]
    submitted = running.command(*flags)
    job = submitted.stdout.strip()
    assert submitted.returncode == exits.OK
    assert job.startswith("job_")
    assert f"/jobs/{job}" in submitted.stderr
    watched = running.command("job watch", job, code=exits.OK)
    assert "finished" in watched.stdout
    assert "baseline" in watched.stdout
    events = running.command("job watch --json", job).stdout.splitlines()
    assert [json.loads(line)["number"] for line in events] == list(range(1, len(events) + 1))
    view = running.read("job show", job)
    (target,) = view["request"]["targets"]
    assert target["protocol"]["runtime"] == "pytorch"
    assert target["protocol"]["sequence_length"] == 64
    assert target["limits"] == {"latency_ms": None, "memory_mb": 5000}
    assert view["targets"][0]["candidates"] == 14 + 3
    ended = running.command("job cancel", job, code=exits.REFUSED)
    assert "Traceback" not in ended.stderr
    assert running.command("job delete", job).returncode == exits.OK
    assert running.command("job show", job).returncode == exits.NOT_FOUND


def test_a_pass_of_its_own_is_submitted_shown_and_refused(running: Running) -> None:
    narrow = ("--narrow", "n_layer=2 d_model=128 d_inner=256", "--candidates", "2")
    job = running.read("job submit --mode decode --memory-length 64 --name decode", *narrow)
    protocol = job["targets"][0]["protocol"]
    assert (protocol["mode"], protocol["sequence_length"], protocol["memory_length"]) == ("decode", 1, 64)
    assert "decode of 1 token after 64" in running.show("job show", job["id"])
    refused = running.command("job submit --mode backward", *narrow, code=exits.REFUSED)
    assert "targets.0.protocol.mode" in refused.stderr


def test_the_only_device_is_the_default_target(running: Running) -> None:
    job = running.read("job submit --candidates 2", "--narrow", "n_layer=2 d_model=128 d_inner=256")
    assert job["request"]["targets"][0]["device"] == running.board


def test_the_first_device_of_a_service_that_starts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lists: list[list[Any]] = [[], [SimpleNamespace(name="local", state="active")]]
    notes: list[str] = []
    client = SimpleNamespace(url="http://here", devices=SimpleNamespace(list=lambda: lists.pop(0)))
    session: Any = SimpleNamespace(client=client, note=notes.append)
    monkeypatch.setattr("edgefront.client.local.is_starting", lambda url, home: True)
    assert only_device(session) == "local"
    assert notes == ["waiting for the agent of `edgefront up` …"]
    lists += [[], []]
    monkeypatch.setattr("edgefront.client.local.is_starting", lambda url, home: False)
    with pytest.raises(InvalidInput, match="that of `edgefront up` needs about ten seconds"):
        only_device(session)


def test_only_a_new_service_of_this_machine_is_starting(tmp_path: Path) -> None:
    assert not is_starting("http://here", tmp_path)
    LocalServer("http://here", os.getpid(), "1").announce(tmp_path)
    assert is_starting("http://here/", tmp_path)
    assert not is_starting("http://elsewhere", tmp_path)
    os.utime(tmp_path / "server.json", (0, 0))
    assert not is_starting("http://here", tmp_path)


def test_ctrl_c_leaves_a_watch_and_not_the_job(running: Running) -> None:
    running.client.devices.drain(running.board)
    job = running.client.jobs.create({**SMALL, "name": "left", "seed": 12}).id
    with subprocess.Popen(
        [sys.executable, "-m", "edgefront", "job", "watch", job, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(running.home),
        # A suite that a shell runs in the background hands on that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        try:
            _, complaint = watching.communicate(timeout=60)
        finally:
            watching.kill()
    assert watching.returncode == exits.INTERRUPTED
    assert "Traceback" not in complaint
    assert running.client.jobs.cancel(job).state == "cancelled"
    running.client.devices.activate(running.board)


def test_downloads(running: Running, tmp_path: Path) -> None:
    point = running.client.frontier(running.job.id).points[0]
    done = running.command("model download", point.id, "--output", str(tmp_path), code=exits.OK)
    path = done.stdout.strip()
    assert Path(path).stat().st_size > point.weight_bytes
    measured, other = done.stderr.splitlines()
    assert measured.startswith("this file: logits of the last position, ")
    assert measured.endswith(f"measured {milliseconds(point.latency_ms)} ms and {megabytes(point.memory_bytes)} MB")
    assert re.fullmatch("--logits all: logits of all .* positions, .* GFLOPs, .* MB of logits; not measured", other)
    whole = running.read("model download --logits all", point.id, "-o", str(tmp_path))
    assert (whole["logits"], whole["path"]) == ("all", path.replace("-last.onnx", ".onnx"))
    output = running.read("model download --format safetensors", point.id, "-o", str(tmp_path / "own"))
    assert output["bytes"] == (tmp_path / "own").stat().st_size
    decode = running.show("model download --format onnx-decode", point.id, "--output", str(tmp_path)).strip()
    assert decode == path.replace("-last.onnx", "-decode.onnx")
    nowhere = running.command("model download", point.id, "-o", str(tmp_path / "no" / "such" / "x"), code=exits.ERROR)
    assert "Traceback" not in nowhere.stderr
    running.command("model download cnd_none", "-o", str(tmp_path), code=exits.NOT_FOUND)


def test_devices_tokens_and_keys(running: Running) -> None:
    assert running.board in running.show("device list")
    assert running.read("device show", running.board)["device_class"] == BOARD
    assert "simulated" in running.show("device show", running.board)
    assert "draining" in running.show("device drain", running.board)
    assert "active" in running.show("device activate", running.board)
    secret = running.show("token create --uses 3").strip()
    assert secret.startswith("efe_")
    (token,) = [item for item in running.read("token list") if item["uses_left"] == 3]
    assert running.read("token revoke", token["id"]) == {"revoked": token["id"]}
    assert running.show("device reenrol --minutes 5", running.board).strip().startswith("efe_")
    assert running.read("device reenrol", running.board)["name"] == running.board
    key = running.read("key create cora")
    assert key["key"].startswith("efk_")
    assert "cora" in running.show("key list")
    assert running.read("key revoke", key["id"]) == {"revoked": key["id"]}
    assert running.command("--key", key["key"], "job", "list").returncode == exits.NO_ACCESS


def test_url_and_key_before_and_behind_the_command(running: Running, tmp_path: Path) -> None:
    place = ("--url", running.service.url, "--key", running.service.key)
    for arguments in ((*place, "job", "list"), ("job", "list", *place), ("job", *place[:0], "list", *place)):
        assert edgefront(*arguments, home=tmp_path).returncode == exits.OK
    assert edgefront("--json", *place, "job", "list", home=tmp_path).stdout.startswith("[")
    by_environment = {"EDGEFRONT_URL": place[1], "EDGEFRONT_KEY": place[3]}
    assert edgefront("job list", home=tmp_path, env=by_environment).returncode == exits.OK
    assert edgefront("job list", *place[:2], home=tmp_path).returncode == exits.NO_ACCESS


def test_a_reader_that_leaves_early_is_no_error(running: Running) -> None:
    command = f"{sys.executable} -m edgefront job watch {running.job.id} --json | head -n 1"
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, env=environment(running.home), timeout=60
    )
    assert json.loads(done.stdout)["number"] == 1
    assert "Traceback" not in done.stderr


def test_predictions_say_where_the_milliseconds_go(running: Running) -> None:
    point = running.client.frontier(running.job.id).points[0]
    place = ("--device", f"class={BOARD}")
    answer = running.read("predict gpt2-small", *place)
    assert answer["learnt_from"] >= running.job.targets[0].candidates
    (prediction,) = answer["predictions"]
    assert prediction["predicted"]["law"] == "own-data-gpt2"
    shown = running.show("predict gpt2-small", *place)
    for words in ("latency (ms)", "perplexity", "attention, 12 heads", "feed-forward, 3072 inner", "extrapolated"):
        assert words in shown
    (prediction_of_measured,) = running.client.predict([point.architecture], device_class=BOARD).predictions
    assert prediction_of_measured.measured is not None
    assert prediction_of_measured.measured.latency_ms == point.latency_ms
    few = running.command(
        "predict gpt2-small", *place, "--protocol", "mode=decode memory_length=77", code=exits.REFUSED
    )
    assert "forward pass of 192 tokens by onnxruntime on cpu" in few.stderr
    for wrong, words in (
        (("--protocol", "mode"), "NAME=VALUE such as mode=decode"),
        (("--protocol", "mode=backward"), "protocol.mode"),
        (("--device", "no such board"), "no such board"),
    ):
        refused = running.command("predict gpt2-small", *place, *wrong)
        assert refused.returncode in (exits.REFUSED, exits.NOT_FOUND)
        assert words in refused.stderr


def test_an_estimate_submits_nothing(running: Running, tmp_path: Path) -> None:
    jobs = {job.id for job in running.client.jobs.list()}
    flags = ("--target", f"class={BOARD}", "--narrow", "n_layer=2..3 d_model=128,192", "--candidates", "20")
    estimate = running.read("job submit --dry-run", *flags)
    assert (estimate["refusals"], estimate["targets"][0]["seconds_from"]) == ([], "predicted")
    assert estimate["targets"][0]["candidates"]["at_most"] == 20
    shown = running.command("job submit --dry-run", *flags)
    assert "launches" in shown.stdout
    assert "predicted from what was measured there" in shown.stderr
    refused = running.command("job submit --dry-run --epsilon 0.5", *flags, code=exits.REFUSED)
    assert "epsilon" in refused.stderr
    file = tmp_path / "job.json"
    file.write_text(
        json.dumps(
            {**SMALL, "targets": [{"device_class": "fridge"}], "parameters": {"min_decoder": 10, "max_decoder": 5}}
        )
    )
    wrong = running.command("job submit --dry-run", str(file), code=exits.REFUSED)
    assert wrong.stderr.count("would be refused") == 2
    assert {job.id for job in running.client.jobs.list()} == jobs


def test_a_frontier_and_an_added_device_have_limits_on_the_times_of_a_generation(running: Running) -> None:
    place = ("--target", f"class={BOARD}", "--prompt", "32", "--new", "8", "--candidates", "6")
    narrow = ("--narrow", "n_layer=2..3 d_model=128,192 d_inner=256..640:64")
    made = running.command("job submit --name talks", *place, *narrow, code=exits.OK)
    job = running.client.jobs.wait(made.stdout.strip(), timeout_s=60)
    points = running.client.frontier(job.id).points
    least = min(point.token_ms or 0.0 for point in points)
    shown = running.read("frontier --max-first-token-ms 1000", job.id, "--max-token-ms", str(least))
    assert [point["token_ms"] for point in shown[0]["points"]] == [least]
    limits = ("--max-first-token-ms", "900", "--max-token-ms", "90")
    running.show("job extend", job.id, "--target", f"class={BOARD}:pytorch", *limits)
    added = running.client.jobs.wait(job.id, timeout_s=60).targets[-1]
    assert (added.limits.first_token_ms, added.limits.token_ms, added.limits.latency_ms) == (900.0, 90.0, None)
    assert added.protocol.new_tokens == 8
    again = running.command("job extend", job.id, "--target", f"class={BOARD}:pytorch", *limits, code=exits.REFUSED)
    assert "already" in again.stderr
