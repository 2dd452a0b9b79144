"""Decides how long this device waits for better conditions before it measures all the same."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from edgefront.core.measurement.protocol import BUSY_WAIT_S

_log = logging.getLogger(__name__)

REST_S = 1800.0
"""Seconds after a wait in vain during which launches are measured, and marked, without waiting again."""


class BusyBackoff:
    """One budget of waiting for the whole device, so that a battery or a governor that stays holds up nobody for long.

    A launch that waited `wait_s` in vain ends the waiting of all for `rest_s`, or until conditions were good once for a
    launch with at least as many threads.
    """

    def __init__(
        self, wait_s: float = BUSY_WAIT_S, rest_s: float = REST_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rest_s = rest_s
        self._wait_s = wait_s
        self._clock = clock
        self._waiting: tuple[str, float] | None = None  # the launch that waits, and since when
        self._gave_up: tuple[int, float] | None = None  # threads of the launch that waited in vain, and when

    def conditions_were_good(self, threads: int) -> None:
        """Conditions are good for a launch with so many threads."""
        self._waiting = None
        if self._gave_up is not None and threads >= self._gave_up[0]:
            self._gave_up = None

    def should_wait(self, launch_id: str, threads: int, bad: str) -> bool:
        """Whether this launch, which asks for better conditions than these, should wait for them (any longer)."""
        now = self._clock()
        if self._gave_up is not None and now - self._gave_up[1] < self._rest_s:
            return False
        if self._waiting is None or self._waiting[0] != launch_id:
            self._waiting = launch_id, now
            _log.info("waiting to measure: %s", bad)
        if now - self._waiting[1] < self._wait_s:
            return True
        self._waiting, self._gave_up = None, (threads, now)
        _log.warning(
            "waited in vain: %s. For the next %.0f minutes launches are measured and marked, or until this has passed",
            *(bad, self._rest_s / 60),
        )
        return False
