"""Which step does what, on which of the data."""

from __future__ import annotations

from itertools import pairwise

import pytest
from synthetic_tasks import Synthetic

from edgefront.core.errors import InvalidInput
from edgefront.core.supernet.schedule import Parts, Schedule
from edgefront.core.supernet.settings import SearchSettings


def test_weights_come_first_and_then_a_fifth_of_the_steps_is_the_architectures() -> None:
    schedule = Schedule(1000, SearchSettings(), epoch=50)
    moments = [schedule.at(step) for step in range(1000)]
    assert schedule.weight_steps == 200
    assert {moment.kind for moment in moments[:200]} == {"weights"}
    assert not any(moment.tuning for moment in moments[:200])
    assert all(moment.tuning for moment in moments[200:])
    assert [moment.kind for moment in moments[200:250]] == ["weights"] * 40 + ["architecture"] * 10
    assert sum(moment.kind == "architecture" for moment in moments) == 160
    for kind in ("weights", "architecture"):
        numbers = [moment.number for moment in moments if moment.kind == kind]
        assert numbers == list(range(len(numbers)))


def test_the_temperature_falls_exponentially_over_the_second_phase() -> None:
    schedule = Schedule(1000, SearchSettings(weight_steps=100), epoch=20)
    temperatures = [schedule.at(step).temperature for step in range(1000)]
    assert temperatures[:101] == [5.0] * 101
    assert temperatures[-1] == pytest.approx(0.087)
    ratios = {round(after / before, 9) for before, after in pairwise(temperatures[100:])}
    assert len(ratios) == 1


def test_a_long_epoch_is_cut_so_that_the_phases_alternate() -> None:
    schedule = Schedule(1000, SearchSettings(weight_steps=0), epoch=10**6)
    changes = sum(schedule.at(step).kind != schedule.at(step + 1).kind for step in range(999))
    assert changes == 19
    assert Schedule(1000, SearchSettings(weight_steps=0, cycle_steps=2), 10**6).at(1).kind == "architecture"


def test_patience_is_a_share_of_the_second_phase() -> None:
    assert Schedule(1000, SearchSettings(weight_steps=200), 50).patience() == 600


@pytest.mark.parametrize(("steps", "weight_steps"), [(100, 99), (100, 200), (1, None)])
def test_steps_that_leave_nothing_for_the_architecture_are_refused(steps: int, weight_steps: int | None) -> None:
    with pytest.raises(InvalidInput, match="steps for the architecture"):
        Schedule(steps, SearchSettings(weight_steps=weight_steps), 10)


def test_the_two_parts_of_the_data_never_mix() -> None:
    data = Synthetic(vocabulary=1000, rows=1, length=8, back=0, steps_per_epoch=10)
    parts = Parts(data, 0.2)
    assert parts.steps == {"weights": 8, "architecture": 2}
    epoch = [data(step).inputs.tolist() for step in range(10)]
    assert [parts.batch("weights", number).inputs.tolist() for number in range(10)] == [*epoch[:8], *epoch[:2]]
    assert [parts.batch("architecture", number).inputs.tolist() for number in range(3)] == [*epoch[8:], epoch[8]]
    assert Parts(data, 0.001).steps["architecture"] == 1
    assert Parts(data, 0.999).steps["weights"] == 1


def test_too_little_data_is_refused() -> None:
    with pytest.raises(InvalidInput, match="one pass over this data is 1 step"):
        Parts(Synthetic(8, 1, 8, 0, steps_per_epoch=1), 0.2)
