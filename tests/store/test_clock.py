"""The database's clock between two questions."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from edgefront.core.store import clock

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


class Hands:
    """This machine's two clocks, moved by hand."""

    def __init__(self) -> None:
        self.monotonic_s, self.wall_s = 100.0, 1e9

    def monotonic(self) -> float:
        return self.monotonic_s

    def time(self) -> float:
        return self.wall_s

    def pass_(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.wall_s += seconds


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(clock, "time", hands)
    return hands


def test_it_is_asked_first_and_again_after_a_while(hands: Hands) -> None:
    database_clock = clock.Clock()
    assert database_clock.now() is None
    database_clock.set(NOON)
    hands.pass_(0.25)
    assert database_clock.now() == NOON + timedelta(seconds=0.25)
    hands.pass_(clock.KEPT_S)
    assert database_clock.now() is None


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_it_is_asked_again_after_a_sleep_or_when_the_time_was_set(hands: Hands, jump_s: float) -> None:
    database_clock = clock.Clock()
    database_clock.set(NOON)
    hands.wall_s += jump_s
    assert database_clock.now() is None
