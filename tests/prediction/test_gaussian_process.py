"""The posterior of Gaussian processes against their definition, and the kernel of a grid."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from edgefront.core.common.gaussian_process import Kernel, Process, from_grid
from edgefront.core.measurement.prediction import latency

KERNELS = (
    Kernel(amplitude=1.3, length_scales=(0.7, 2.0), linear=0.4, noise=0.2),
    Kernel(amplitude=2.0, length_scales=(1.0, 1.0), linear=0.0, noise=1.0),
)


def seen(number: int = 30, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows, and a smooth function of them with noise."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(number, 2))
    return rows, np.sin(2 * rows[:, 0]) + rows[:, 1] + 0.1 * rng.standard_normal(number)


@pytest.mark.parametrize("kernel", KERNELS)
def test_mean_and_deviation_are_those_of_the_joint_normal_distribution(kernel: Kernel) -> None:
    (rows, targets), (asked, _) = seen(), seen(9, seed=1)
    noise = np.linspace(0.5, 3.0, len(rows))
    mean, deviation = Process(kernel, rows, targets, noise).predict(asked)
    centre = rows.mean(axis=0)
    covariance = kernel.between(rows, rows, centre) + kernel.noise**2 * np.diag(noise)
    across = kernel.between(asked, rows, centre)
    own = np.diag(kernel.between(asked, asked, centre)) + kernel.noise**2
    np.testing.assert_allclose(mean, across @ np.linalg.solve(covariance, targets))
    np.testing.assert_allclose(deviation**2, own - np.diag(across @ np.linalg.solve(covariance, across.T)))


def test_a_mean_of_repeats_counts_as_its_repeats() -> None:
    kernel = Kernel(amplitude=1.0, length_scales=(1.0, 1.0), linear=0.0, noise=0.3)
    (rows, targets), (asked, _) = seen(), seen(9, seed=1)
    shift = np.array([0.2, -0.2])
    repeated = Process(kernel, np.repeat(rows, 2, axis=0), (targets[:, None] + shift).ravel()).predict(asked)
    once = Process(kernel, rows, targets, np.full(len(rows), 0.5)).predict(asked)
    np.testing.assert_allclose(repeated, once)


def test_what_is_left_out_was_not_seen() -> None:
    """Another target of the same row is left out with it. The centre is all rows' alone where nothing is linear."""
    rows, targets = seen()
    rows[7] = rows[3]
    mean, deviation = Process(KERNELS[1], rows, targets).leave_one_out()
    for place in (0, 3):
        others = (rows != rows[place]).any(axis=1)
        expected = Process(KERNELS[1], rows[others], targets[others]).predict(rows[[place]])
        np.testing.assert_allclose((mean[place], deviation[place]), np.ravel(expected))


def test_a_grid_finds_how_far_rows_tell_about_each_other() -> None:
    rng = np.random.default_rng(2)
    rows, scale = rng.normal(size=(120, 2)), np.array([1.0, 1.0])
    covariance = Kernel(3.0, (1.0, 1.0), 0.0, 0.0).between(rows, rows, np.zeros(2)) + np.eye(120)
    targets = np.linalg.cholesky(covariance) @ rng.standard_normal(120)
    kernel = from_grid(rows, targets, [length * scale for length in (0.1, 1.0, 10.0)], (0.1, 1.0, 9.0), gain=2.0)
    assert kernel == Kernel(3.0, (1.0, 1.0), 0.0, 1.0)
    assert from_grid(rows, rng.standard_normal(120), [scale], (1.0, 9.0), gain=2.0) is None


def test_a_correction_is_learnt_of_more_launches_than_carry_it() -> None:
    rows, targets = seen(500)
    kernel = latency.choose_kernel(rows, targets - targets.mean())
    assert kernel is not None
    correction = latency.fit_correction(rows, targets - targets.mean(), np.ones(500), kernel)
    assert correction.process is not None
    assert len(correction.process.inputs) < 500
    asked, truth = seen(200, seed=3)
    mean, variance = correction.predict(asked)
    assert np.std(truth - targets.mean() - mean) < 0.2 * np.std(truth)
    assert (variance >= 0).all()
    far, doubt = correction.predict(np.array([[90.0, 90.0]]))
    assert abs(far[0]) < 1e-6
    assert doubt[0] == pytest.approx(kernel.amplitude**2)
