"""Latency predictors on launches of real devices (HW-GPT-Bench), and on devices whose costs are known."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hwgpt import PROTOCOL, Table, read_table, spread
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import space
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.measurement.prediction.calibration import widening
from edgefront.core.measurement.prediction.features import NAMES, farthest, features
from edgefront.core.measurement.prediction.latency import LatencyPredictor
from edgefront.core.measurement.protocol import MeasurementProtocol

GOLDEN = Path(__file__).parents[1] / "golden" / "hwgpt_latency_s.csv.gz"
SPLITS = 6


@lru_cache
def golden() -> Table:
    return read_table(GOLDEN)


def fitted(device: str, rows: NDArray[np.int64], **options: object) -> LatencyPredictor:
    table = golden()
    return LatencyPredictor.fit(table.shapes.take(rows), PROTOCOL, table.columns[device][rows], **options)  # type: ignore[arg-type]


def judged(predictor: LatencyPredictor, device: str, rows: NDArray[np.int64]) -> tuple[float, float]:
    """Mean relative error, and share of intervals that hold, of a quarter of the rows that it did not learn from."""
    table = golden()
    unseen = np.setdiff1d(np.arange(len(table.shapes)), rows)[::4]
    predicted, truth = predictor.predict(table.shapes.take(unseen)), table.columns[device][unseen]
    held = (predicted.low <= truth) & (truth <= predicted.high)
    return float(np.mean(np.abs(predicted.ms / truth - 1))), float(held.mean())


@lru_cache
def over_splits(device: str, launches: int) -> tuple[float, float]:
    chosen = [spread(golden().shapes, PROTOCOL, launches, seed) for seed in range(SPLITS)]
    judgements = [judged(fitted(device, rows), device, rows) for rows in chosen]
    return float(np.mean([error for error, _ in judgements])), float(np.mean([held for _, held in judgements]))


# The two last are of devices that changed their speed while they were measured: as far apart as the speeds are.
MAX_ERROR = {
    "a100_ms": 0.005,
    "v100_ms": 0.028,
    "rtx3080_ms": 0.045,
    "rtx2080_ms": 0.105,
    "cpu_alldlc_ms": 0.05,
    "helix_cpu_ms": 0.055,
}


@pytest.mark.parametrize("device", MAX_ERROR)
def test_twenty_launches_predict_a_device(device: str) -> None:
    error, held = over_splits(device, 20)
    assert error <= MAX_ERROR[device]
    assert 0.88 <= held <= 0.99


@pytest.mark.parametrize("device", MAX_ERROR)
def test_intervals_hold_from_ten_launches(device: str) -> None:
    assert over_splits(device, 10)[1] >= 0.88


def test_more_launches_are_better() -> None:
    assert over_splits("a100_ms", 50)[0] < over_splits("a100_ms", 20)[0] < over_splits("a100_ms", 10)[0] < 0.012


def test_a_jump_that_the_architecture_decides_is_learnt() -> None:
    """A kernel that suits one width half as well, as libraries have them."""
    table = golden()
    latency = table.columns["a100_ms"] * np.where(table.shapes.d_model == 384, 2.0, 1.0)
    rows = spread(table.shapes, PROTOCOL, 50, 1)
    predictor = LatencyPredictor.fit(table.shapes.take(rows), PROTOCOL, latency[rows])
    predicted = predictor.predict(table.shapes)
    assert np.mean(np.abs(predicted.ms / latency - 1)) < 0.05
    assert np.mean((predicted.low <= latency) & (latency <= predicted.high)) > 0.9


def test_other_devices_help_where_launches_are_few() -> None:
    others = [
        fitted(name, spread(golden().shapes, PROTOCOL, 60, 5)) for name in ("a100_ms", "rtx2080_ms", "rtx3080_ms")
    ]
    alone, helped = [], []
    for seed in range(SPLITS):
        rows = spread(golden().shapes, PROTOCOL, 6, seed)
        alone.append(judged(fitted("v100_ms", rows), "v100_ms", rows)[0])
        helped.append(judged(fitted("v100_ms", rows, prior=others), "v100_ms", rows)[0])
    assert np.mean(helped) < 0.9 * np.mean(alone)


def test_the_order_of_rows_does_not_matter() -> None:
    rows = spread(golden().shapes, PROTOCOL, 24, 2)
    turned = np.random.default_rng(0).permutation(rows)
    forwards, backwards = fitted("helix_cpu_ms", rows), fitted("helix_cpu_ms", turned)
    assert (forwards.predict(golden().shapes).ms == backwards.predict(golden().shapes).ms).all()
    assert (forwards.predict(golden().shapes).high == backwards.predict(golden().shapes).high).all()


def test_repeated_launches_count_for_more() -> None:
    table = golden()
    rows = spread(table.shapes, PROTOCOL, 20, 3)
    rng = np.random.default_rng(1)
    launches = np.where(np.arange(20) % 2, 25, 1)
    latency = table.columns["a100_ms"][rows] * np.exp(0.1 * rng.standard_normal(20) / np.sqrt(launches))
    plain = LatencyPredictor.fit(table.shapes.take(rows), PROTOCOL, latency)
    weighted = LatencyPredictor.fit(table.shapes.take(rows), PROTOCOL, latency, launches=launches, noise=0.1)
    assert judged(weighted, "a100_ms", rows)[0] < judged(plain, "a100_ms", rows)[0]


# What is predicted ---------------------------------------------------------------------------------------------------

HYBRIDS = MeasurementProtocol(sequence_length=64)
NARROWED = {"n_block": {"min": 2, "max": 12, "step": 1}, "d_model": [128, 256]}
COSTS = {"pass": 0.2, "block_stream": 2e-7, "attention_products": 3e-8, "attention_calls": 0.03, "recurrence": 2e-6}
COSTS |= {"feed_forward_products": 2e-8, "srupp_products": 3e-8, "output_products": 2e-8}


@lru_cache
def hybrids() -> tuple[list[Architecture], Shapes, NDArray[np.float64]]:
    """Architectures, and latencies of a device that needs exactly `COSTS`."""
    rng, of = np.random.default_rng(4), space("hybrid").narrow(NARROWED)
    architectures = [of.architecture(of.sample(rng)) for _ in range(60)]
    shapes = Shapes.of(architectures)
    return architectures, shapes, features(shapes, HYBRIDS) @ np.array([COSTS.get(name, 0.0) for name in NAMES])


@lru_cache
def of_hybrids() -> LatencyPredictor:
    _, shapes, latency = hybrids()
    return LatencyPredictor.fit(shapes.take(slice(0, 40)), HYBRIDS, latency[:40])


def test_known_costs_are_found_and_milliseconds_are_told_by_block() -> None:
    architectures, shapes, latency = hybrids()
    predictor = of_hybrids()
    assert np.mean(np.abs(predictor.predict(shapes).ms / latency - 1)[40:]) < 0.01
    parts = predictor.parts(shapes, 50)
    assert [part.kind for part in parts] == [*(block.kind for block in architectures[50].blocks), "ends"]
    assert [part.block for part in parts] == [*range(len(architectures[50].blocks)), None]
    assert sum(part.ms for part in parts) == pytest.approx(predictor.predict(shapes).ms[50])
    assert all(part.ms == pytest.approx(sum(part.by_feature.values())) for part in parts)
    assert all(part.ms >= 0 for part in parts)


def test_a_further_block_takes_longer() -> None:
    predictor = fitted("cpu_alldlc_ms", spread(golden().shapes, PROTOCOL, 40, 0))
    blocks = [{"kind": "attention", "n_head": 8}, {"kind": "feed_forward", "d_inner": 1152}]
    deeper = [
        Architecture.parse({"d_model": 384, "embedding": {"vocab_size": 50257}, "blocks": blocks * depth})
        for depth in range(1, 25)
    ]
    predicted = predictor.predict(Shapes.of(deeper))
    assert (np.diff(predicted.ms) > 0).all()
    assert np.isfinite(predicted.ms).all()
    assert (predicted.low > 0).all()
    assert ((predicted.low < predicted.ms) & (predicted.ms < predicted.high)).all()
    # One layer is far from the ten to twelve that were measured.
    width = predicted.high / predicted.ms
    assert width[0] > width[10]


def test_what_was_never_measured_is_uncertain() -> None:
    """A kind of block that no launch had costs what others do, perhaps nothing, perhaps double."""
    predictor = fitted("a100_ms", spread(golden().shapes, PROTOCOL, 40, 0))
    measured_blocks = [{"kind": "attention", "n_head": 8}, {"kind": "feed_forward", "d_inner": 1152}] * 5
    unknown = [*measured_blocks, *[{"kind": "srupp", "d_attn": 384}] * 10]
    measured_model, other = (
        Architecture.parse({"d_model": 384, "embedding": {"vocab_size": 50257}, "blocks": blocks})
        for blocks in (measured_blocks, unknown)
    )
    predicted = predictor.predict(Shapes.of([measured_model, other]))
    assert predicted.ms[1] > 1.3 * predicted.ms[0]
    assert predicted.high[1] / predicted.ms[1] > 1.1 > predicted.high[0] / predicted.ms[0]


def test_no_architectures_are_predicted_as_none() -> None:
    assert of_hybrids().predict(hybrids()[1].take([])).ms.shape == (0,)


# Audits --------------------------------------------------------------------------------------------------------------


def audited(measured: np.ndarray, rows: slice) -> float:
    """By what factor these audits ask intervals to be wider."""
    predicted = of_hybrids().predict(hybrids()[1].take(rows))
    return widening(np.log(measured[rows] / predicted.ms), np.log(predicted.high / predicted.ms))


def test_audits_that_hold_and_none_change_nothing() -> None:
    assert audited(hybrids()[2], slice(40, 60)) == pytest.approx(1)
    assert widening(np.zeros(0), np.zeros(0)) == 1


def test_audits_of_a_device_that_changed_widen_until_they_hold() -> None:
    _, shapes, latency = hybrids()
    jumped = latency * np.where(np.arange(60) % 3, 1.0, 1.6)
    by = audited(jumped, slice(40, 50))
    assert by > 3
    predicted = of_hybrids().predict(shapes.take(slice(50, 60)))
    missed = np.abs(np.log(jumped[50:] / predicted.ms))
    assert np.mean(missed <= by * np.log(predicted.high / predicted.ms)) >= 0.9


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_a_latency_that_is_none_names_its_row_and_there_are_as_many_as_architectures(wrong: float) -> None:
    _, shapes, latency = hybrids()
    spoilt = latency.copy()
    spoilt[7] = wrong
    with pytest.raises(InvalidInput, match=r"latency_ms\.7: must be a number above zero") as caught:
        LatencyPredictor.fit(shapes, HYBRIDS, spoilt)
    assert caught.value.field == "latency_ms.7"
    with pytest.raises(InvalidInput, match="60 architectures need 60 values"):
        LatencyPredictor.fit(shapes, HYBRIDS, latency[:59])


def test_one_launch_and_equal_architectures_teach_nothing() -> None:
    _, shapes, latency = hybrids()
    with pytest.raises(InvalidInput, match="at least 3 different architectures are needed, not 1") as caught:
        LatencyPredictor.fit(shapes.take([5]), HYBRIDS, latency[[5]])
    assert caught.value.field == "shapes.0"
    with pytest.raises(InvalidInput, match="not 2: row 3 equals an earlier row"):
        LatencyPredictor.fit(shapes.take([0, 1, 1, 0]), HYBRIDS, latency[[0, 1, 1, 0]])


def test_three_launches_are_enough_to_begin_with() -> None:
    _, shapes, latency = hybrids()
    predicted = LatencyPredictor.fit(shapes.take([0, 20, 40]), HYBRIDS, latency[[0, 20, 40]]).predict(shapes)
    assert np.isfinite(predicted.high).all()
    assert (predicted.high / predicted.ms > 1.1).all()


def test_the_farthest_rows_leave_none_far_away() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 2))
    chosen = farthest(rows, 40)
    distance = np.min(np.linalg.norm(rows[:, None] - rows[chosen][None], axis=2), axis=1)
    assert len(set(chosen.tolist())) == 40
    assert distance.max() < 0.6
    assert len(farthest(rows[:5], 40)) == 5
