"""What API, health check and workers send to the broker of each form of URL, and the URLs that are refused."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from edgefront.core.common.errors import InvalidInput
from edgefront.core.services.dispatch import broker_answers, broker_app, sender
from edgefront.core.services.settings import BrokerSettings, Settings
from edgefront.core.services.tasks import SWEEP
from edgefront.core.store.database import Database
from edgefront.workers.app import create_celery

PASSWORD = "hunter2"
TLS_HANDSHAKE = 0x16


def first_bytes(form: str, folder: Path, connect: Callable[[Settings], object]) -> bytes:
    """What a process sends first; it gets no answer."""
    path = folder / "redis.sock"
    on_a_path = form.startswith("redis+socket")
    listening = socket.socket(socket.AF_UNIX if on_a_path else socket.AF_INET)
    listening.bind(str(path) if on_a_path else ("127.0.0.1", 0))
    listening.listen(1)
    port = 0 if on_a_path else listening.getsockname()[1]
    settings = Settings(home=folder, broker={"url": form.format(password=PASSWORD, port=port, folder=folder)})
    seen: list[bytes] = []

    def listen() -> None:
        connection, _ = listening.accept()
        with connection:
            listening.close()  # a second attempt finds nobody
            path.unlink(missing_ok=True)
            seen.append(connection.recv(4096))

    listener = threading.Thread(target=listen)
    listener.start()
    with suppress(Exception):
        connect(settings)
    listener.join()
    return seen[0]


@pytest.mark.parametrize(
    ("form", "first"),
    [
        ("redis://:{password}@127.0.0.1:{port}/3", b"*"),
        ("rediss://:{password}@127.0.0.1:{port}/3", bytes([TLS_HANDSHAKE])),
        ("rediss://:{password}@127.0.0.1:{port}/3?ssl_cert_reqs=none", bytes([TLS_HANDSHAKE])),
        ("redis+socket://{folder}/redis.sock?virtual_host=3", b"*"),
    ],
)
def test_api_health_check_and_worker_open_the_same_connection(
    form: str, first: bytes, tmp_path: Path, sqlite_url: str, open_database: Callable[..., Database]
) -> None:
    database = open_database(sqlite_url)
    processes: list[Callable[[Settings], object]] = [
        lambda settings: create_celery(settings, database).connection_for_read().transport.establish_connection(),
        lambda settings: sender(settings)(SWEEP, {}),
        lambda settings: broker_answers(settings, 2.0),
    ]
    seen = [first_bytes(form, tmp_path, connect) for connect in processes]
    assert [sent[:1] for sent in seen] == [first] * 3
    assert all((PASSWORD.encode() in sent) == form.startswith("redis://") for sent in seen)


def test_tls_verifies_the_certificate_unless_the_url_says_otherwise(tmp_path: Path) -> None:
    def checks(url: str) -> int:
        settings = Settings(home=tmp_path, broker=BrokerSettings(url=url))
        return int(broker_app(settings).connection().ssl["ssl_cert_reqs"])

    required = checks("rediss://h/0")
    assert (checks("rediss://h/0?ssl_ca_certs=/ca.pem"), checks("rediss://h/0?ssl_cert_reqs=none")) == (required, 0)
    assert required > 0


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{PASSWORD}/x@h:6379/0",
        f"redis://:{PASSWORD}@h:port/0",
        f"redis://:{PASSWORD}@h:0/0",
        f"redis://:{PASSWORD}@h/name",
        f"redis://:{PASSWORD}@h/0?timeout=3",
        f"redis://:{PASSWORD}@h/0#1",
        f"rediss://:{PASSWORD}@h/0?ssl_cert_reqs=maybe",
        f"unix://:{PASSWORD}@/redis.sock",
        f"sentinel://:{PASSWORD}@h:26379",
        f"amqp://u:{PASSWORD}@h",
        "filesystem://",
        "redis+socket://",
        "redis://",
        f"{PASSWORD}@h",
        "",
    ],
)
def test_a_url_that_no_process_can_use_is_refused_without_its_password(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEFRONT_BROKER__URL", url)
    with pytest.raises(InvalidInput, match=r"^EDGEFRONT_BROKER__URL: this is not the URL of a broker") as refused:
        Settings()
    assert PASSWORD not in f"{refused.value.detail} {refused.value.extra}"
