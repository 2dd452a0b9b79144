"""Following a job: events trigger a new read of the whole job, at a limited rate."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from edgefront.client import Client
from edgefront.core.errors import EdgefrontError
from edgefront.core.states import ENDED_JOBS
from edgefront.core.wire.jobs import JobView

_POLL_S = 2.0
_REST_S = 0.4


def views(client: Client, job_id: str) -> Iterator[JobView]:
    """The job now, and again after events or an interval, until it has ended.

    The last view is the ended job. `Unavailable` if the server stays away longer than the client's patience.
    """
    news: queue.Queue[None] = queue.Queue(maxsize=1)
    over = threading.Event()

    def listen() -> None:
        # Only a notification: if the stream breaks permanently, the requests below get the same error and raise it.
        with suppress(EdgefrontError):
            for _ in client.jobs.events(job_id, after=client.jobs.get(job_id).last_event):
                with suppress(queue.Full):
                    news.put_nowait(None)
                if over.is_set():
                    return

    threading.Thread(target=listen, name="edgefront-events", daemon=True).start()
    try:
        while True:
            job = client.jobs.get(job_id)
            yield job
            if job.state in ENDED_JOBS:
                return
            time.sleep(_REST_S)
            with suppress(queue.Empty):
                news.get(timeout=_POLL_S - _REST_S)
    finally:
        over.set()
