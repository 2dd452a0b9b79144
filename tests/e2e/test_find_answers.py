"""`edgefront find` as a new user runs it: a service, its own agent on this CPU, limits in, answer out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from processes import environment, server_of, started, until

from edgefront import Client
from edgefront.cli import exits

SPACE = ("--narrow", "n_layer=2 d_model=128,192 d_inner=256..512:64", "--sequence-length", "32")


def run(mark: str, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edgefront", *arguments],
        env=environment(mark) | {"EDGEFRONT_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_limits_in_answer_out_with_both_runtimes(tmp_path: Path, mark: str, known_device: dict[str, str]) -> None:
    home, log = tmp_path / "home", tmp_path / "up.log"
    with started("up", "--home", str(home), "--port", "0", mark=mark, log=log, variables=known_device):
        until(lambda: server_of(home))
        until(lambda: "measures as device 'local'" in log.read_text(encoding="utf-8"))
        finished = run(
            *(mark, home, "find", *SPACE, "--runtime", "onnxruntime", "--runtime", "pytorch", "--candidates", "4"),
            *("--max-latency-ms", "20000", "--max-memory-mb", "4000", "--json"),
        )
        assert finished.returncode == exits.OK, finished.stderr
        output = json.loads(finished.stdout)
        assert output["state"] == "finished"
        assert len(output["targets"]) == 2
        for target in output["targets"]:
            view = target["recommendation"]
            assert view["recommended"]["latency_ms"] > 0
            assert view["recommended"]["predicted"]["perplexity"] > 1
            assert view["baseline"]["role"] == "baseline"
            assert view["runners_up"]
        path = run(
            mark, home, *output["targets"][0]["commands"]["download"].split()[1:], "-o", str(tmp_path / "m.onnx")
        )
        assert path.returncode == exits.OK, path.stderr
        assert (tmp_path / "m.onnx").stat().st_size > 1 << 20

        written = run(mark, home, "report", "write", output["job"], "-o", str(tmp_path / "report"))
        assert written.returncode == exits.OK, written.stderr
        for target in output["targets"]:
            name = target["recommendation"]["target"]
            again = run(mark, home, "report", "verify", str(tmp_path / "report"), "--target", name, "--json")
            answer = json.loads(again.stdout)
            assert again.returncode == (exits.OK if answer["agrees"] else exits.DISAGREES), again.stderr
            assert answer["same_class"] is True
            assert answer["other_differences"] == {}
            assert answer["measured"]["protocol"]["runtime"] in name

        shown = run(mark, home, "job", "recommend", output["job"], "--max-latency-ms", "0.001")
        assert shown.returncode == exits.NOTHING_FITS, shown.stderr
        assert " ".join(shown.stdout.split()).count("If the latency was meant in seconds, it is 1 ms.") == 2
        with Client(home=home) as client:
            jobs = len(list(client.jobs.list()))
        refused = run(mark, home, "find", *SPACE, "--max-latency-ms", "0.001")
        assert refused.returncode == exits.REFUSED
        assert "the quickest is predicted to take" in refused.stderr
        with Client(home=home) as client:
            assert len(list(client.jobs.list())) == jobs
