"""Rate limits: token buckets, one per key or address, in this process."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from edgefront.core.errors import TooManyRequests

MAX_BUCKETS = 20_000


class RateBound:
    """A number of events per minute for each subject, with bursts of `burst_s` seconds' worth.

    Buckets are per process: with several API processes the limit applies in each. Beyond `MAX_BUCKETS` the longest idle
    ones are dropped; a dropped bucket is full again, as it would be after its idle time.
    """

    def __init__(
        self, per_minute: float, *, burst_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate = per_minute / 60.0
        self.burst = max(1.0, self.rate * burst_s)
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, subject: Hashable) -> None:
        """Counts one event; `TooManyRequests` with `retry_after_s` if the bucket is empty."""
        tokens, now = self._level(subject)
        if tokens < 1.0:
            wait = (1.0 - tokens) / self.rate
            raise TooManyRequests(
                f"more than {self.rate * 60:.0f} requests per minute; retry in {wait:.1f} s", retry_after_s=wait
            )
        self._buckets[subject] = (tokens - 1.0, now)
        self._buckets.move_to_end(subject)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)

    def has_room(self, subject: Hashable) -> bool:
        """Whether `take` would count; counts nothing."""
        return self._level(subject)[0] >= 1.0

    def _level(self, subject: Hashable) -> tuple[float, float]:
        now = self._clock()
        bucket = self._buckets.get(subject)
        if bucket is None:
            return self.burst, now
        tokens, since = bucket
        return min(self.burst, tokens + (now - since) * self.rate), now
