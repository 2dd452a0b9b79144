"""Messages that come often are gathered: the first goes at once, those that come meanwhile as one."""

from __future__ import annotations

import threading
from typing import Any

from concurrency import at_once

from edgefront.core.services.dispatch import _Throttle

ONE, OTHER = {"target_id": "one"}, {"target_id": "other"}


def test_the_first_goes_at_once_and_the_rest_as_one() -> None:
    sent: list[dict[str, Any]] = []
    came, again = threading.Event(), threading.Event()

    def send(_task: str, arguments: dict[str, Any]) -> None:
        sent.append(arguments)
        if sent.count(ONE) == 2:
            came.set()
        if sent.count(OTHER) == 2:
            again.set()

    gathered = _Throttle(send, 2.0)  # longer than this process may be held up between two calls
    for _ in range(20):
        gathered("settle", ONE)
    gathered("settle", OTHER)
    assert sent == [ONE, OTHER]
    assert came.wait(30)
    assert sent == [ONE, OTHER, ONE]
    gathered("settle", OTHER)
    assert again.wait(30)
    assert sent[3:] == [OTHER]


def test_no_request_is_lost_whichever_thread_sends() -> None:
    """What is asked for after a message has gone is followed by another message."""
    asked, seen = 0, 0
    lock, done = threading.Lock(), threading.Event()

    def send(_task: str, _arguments: dict[str, Any]) -> None:
        nonlocal seen
        with lock:
            seen = asked
            if seen == 400:
                done.set()

    gathered = _Throttle(send, 0.005)

    def ask() -> None:
        nonlocal asked
        for _ in range(100):
            with lock:
                asked += 1
            gathered("settle", ONE)

    at_once(*[ask] * 4)
    assert done.wait(30)
