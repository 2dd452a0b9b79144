"""`edgefront demo`: the whole loop, in a terminal and without one, and that nothing of it stays behind."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import onnx
from processes import environment, marked, started, until

from edgefront.cli import exits


def tiny(output: Path, *more: str) -> tuple[str, ...]:
    return ("demo", "--candidates", "2", "--minutes", "3", "--output", str(output), "--port", "0", *more)


def check(output: Path, words: str) -> None:
    for expected in (
        "Searching llama, small sizes, for the best model to train on 10 billion tokens",
        "this CPU, ONNX Runtime: ",
        "this CPU, llama.cpp: ",
        "log-probabilities within",
        "(ratio, own data, 10B tokens)",
        "next: edgefront train submit --candidate cnd_",
    ):
        assert expected in words, words
    assert "Traceback" not in words
    assert (output / "frontier.png").read_bytes().startswith(b"\x89PNG")
    by_ending = {path.suffix: path for path in (output / "models").iterdir()}
    assert set(by_ending) == {".onnx", ".safetensors"}
    onnx.checker.check_model(by_ending[".onnx"])


def test_once_it_ends_by_itself_and_leaves_no_process(tmp_path: Path, mark: str, known_device: dict[str, str]) -> None:
    output, log = tmp_path / "out", tmp_path / "demo.log"
    with started(*tiny(output, "--once"), mark=mark, log=log, variables=known_device) as demo:
        assert demo.wait(280) == exits.OK, log.read_text()
        assert marked(mark) == {}
    words = log.read_text(encoding="utf-8")
    check(output, words)
    assert "live page" not in words  # nothing serves it any more

    # Its own folder is used again; anybody else's is not touched.
    own = tmp_path / "own"
    own.mkdir()
    (own / "thesis.txt").write_text("years of work", encoding="utf-8")
    with started(*tiny(own, "--once"), mark=mark, log=tmp_path / "2.log") as refused:
        assert refused.wait(60) == exits.REFUSED
    assert [path.name for path in own.iterdir()] == ["thesis.txt"]
    with started(*tiny(output, "--once"), mark=mark, log=tmp_path / "3.log", variables=known_device) as again:
        until(lambda: "Measuring 4 layers" in (tmp_path / "3.log").read_text(encoding="utf-8"))
        assert not (output / "frontier.png").exists()
        again.send_signal(signal.SIGINT)
        assert again.wait(60) == exits.INTERRUPTED
        assert marked(mark) == {}
    assert "Traceback" not in (tmp_path / "3.log").read_text(encoding="utf-8")


def test_in_a_terminal_it_stays_until_ctrl_c(tmp_path: Path, mark: str, known_device: dict[str, str]) -> None:
    output = tmp_path / "out"
    own_end, terminal = pty.openpty()
    shown = bytearray()

    def read() -> None:
        with suppress(OSError):  # the terminal closes with its last user
            while chunk := os.read(own_end, 65536):
                shown.extend(chunk)

    process = subprocess.Popen(
        [sys.executable, "-m", "edgefront", *tiny(output)],
        env=environment(mark) | known_device | {"TERM": "xterm"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        until(lambda: b"The live page, until Ctrl-C: http://127.0.0.1:" in shown or process.poll() is not None, 280)
        assert process.poll() is None, shown.decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == exits.OK
        assert marked(mark) == {}
        reader.join(10)
        check(output, " ".join(shown.decode().split(" ")))
    finally:
        for pid in marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        os.close(own_end)
