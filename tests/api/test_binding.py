"""Where the service may listen without TLS, and that it is stopped as it was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgefront.api.serve import make_server
from edgefront.core.common.addresses import is_local
from edgefront.core.common.errors import InvalidInput
from edgefront.core.services.settings import HttpSettings, Settings
from servers import free_port


def settings(**http: Any) -> Settings:
    return Settings(http=HttpSettings(**http))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    settings(host=host).check_bind()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "no.such.host.invalid"])
def test_plain_http_beyond_loopback_is_refused_unless_asked_for(host: str) -> None:
    assert not is_local(host)
    with pytest.raises(InvalidInput) as refused:
        make_server(settings(host=host))
    assert refused.value.field == "http.host"
    assert "EDGEFRONT_HTTP__INSECURE" in refused.value.detail
    settings(host=host, insecure=True).check_bind()
    settings(host=host, certificate=Path("a.pem"), certificate_key=Path("b.pem")).check_bind()


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(InvalidInput, match="belong together"):
        settings(certificate=Path("a.pem")).check_bind()


def _environment(home: Path, **variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDGEFRONT_")}
    return {**kept, "EDGEFRONT_HOME": str(home), **variables}


def _wait_until_ready(port: int, *processes: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 90
    while True:
        try:
            # Each time over a new connection, which the kernel gives to any process that listens.
            httpx.get(f"http://127.0.0.1:{port}/v1/health", trust_env=False).raise_for_status()
            return
        except httpx.TransportError:
            for process in processes:
                assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < end, "it did not start"
            time.sleep(0.1)


def test_several_processes_share_one_port(tmp_path: Path, sqlite_url: str, redis_url: str) -> None:
    port = free_port()
    environment = _environment(
        tmp_path,
        EDGEFRONT_DATABASE__URL=sqlite_url,
        EDGEFRONT_BROKER__URL=redis_url,
        EDGEFRONT_HTTP__PORT=str(port),
        EDGEFRONT_HTTP__SHARE_PORT="true",
    )
    command = [sys.executable, "-m", "edgefront.api"]
    first, second = (
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    )
    try:
        _wait_until_ready(port, first, second)
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=60)
        _wait_until_ready(port, second)
        assert second.poll() is None
    finally:
        for process in (first, second):
            process.terminate()
            process.communicate(timeout=60)


def test_a_shared_port_needs_a_broker() -> None:
    with pytest.raises(InvalidInput, match="separate broker") as refused:
        settings(share_port=True).check_bind()
    assert refused.value.field == "http.share_port"


def test_the_module_serves_until_sigterm(tmp_path: Path) -> None:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "edgefront.api"],
        env=_environment(tmp_path, EDGEFRONT_HTTP__PORT=str(port)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_until_ready(port, process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGTERM), errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("name", "value", "code", "said"),
    [
        ("HTTP__HOST", "0.0.0.0", 2, "plain HTTP"),
        ("DATABASE__URL", "sqlite:////dev", 1, "the database is unavailable: unable to open database file"),
    ],
)
def test_the_module_says_why_it_does_not_serve(tmp_path: Path, name: str, value: str, code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgefront.api"],
        env=_environment(tmp_path, **{f"EDGEFRONT_{name}": value}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
