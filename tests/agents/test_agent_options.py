"""The options of the agent's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefront.agents.options import MAX_BATCH, AgentOptions, parse
from edgefront.core.errors import InvalidInput
from edgefront.core.wire import agent as wire


def test_a_command_line_is_read() -> None:
    line = "--server http://here --token-file t --cores 2,4-5 --memory-limit-mb 900 --batch 3 --insecure --json"
    options, json_logs = parse(line.split())
    given = {"token_file": Path("t"), "cores": "2,4-5", "memory_limit_mb": 900, "batch": 3, "insecure": True}
    assert (options, json_logs) == (AgentOptions("http://here", **given), True)  # type: ignore[arg-type]
    assert (options.measuring_cores, options.memory_limit_bytes) == ((2, 4, 5), 900_000_000)
    assert parse(["--server", "http://here"]) == (AgentOptions("http://here"), False)


def test_a_batch_is_at_most_what_a_lease_may_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert MAX_BATCH == wire.MAX_BATCH
    for batch in (0, MAX_BATCH + 1):
        with pytest.raises(SystemExit):
            parse(["--server", "http://here", "--batch", str(batch)])
        assert f"{batch} is out of range: 1 to {MAX_BATCH}" in capsys.readouterr().err


def test_cores_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidInput, match="cores"):
        _ = AgentOptions("http://127.0.0.1", cores="4-2").measuring_cores
