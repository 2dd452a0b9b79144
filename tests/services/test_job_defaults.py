"""What a job's request leaves to the service."""

from __future__ import annotations

from typing import Any

import pytest

from edgefront.core.architectures.catalogue import space
from edgefront.core.architectures.cost.costs import costs
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.services.jobs.resolve import with_defaults


def depths(*limits: dict[str, float], **changes: Any) -> tuple[int, ...] | None:
    value = {
        "space": {"name": "lts-gpt2"},
        "targets": [
            {"device": f"device-{index}", "limits": target_limits} for index, target_limits in enumerate(limits)
        ],
        "goal": "best_within_limits",
    }
    return with_defaults(JobRequest.model_validate(value | changes)).baseline_layers


def test_for_the_best_within_limits_depths_whose_weights_alone_are_too_large_are_not_measured() -> None:
    found = depths({"memory_mb": 200.0})
    assert found is not None
    largest = space("lts-gpt2").baselines([len(found), len(found) + 1])
    assert list(found) == list(range(1, len(found) + 1))
    inside, beyond = (4 * costs(architecture).total_parameters for architecture in largest)
    assert inside <= 200 * 10**6 < beyond
    assert depths({"memory_mb": 1.0}) == (1,)
    assert depths({"memory_mb": 1.0}, {"memory_mb": 200.0}) == found
    assert depths({"memory_mb": 1.0}, baseline_layers=[2, 3]) == (2, 3), "those that are named stay"


@pytest.mark.parametrize(
    ("limits", "changes"),
    [
        ([{"latency_ms": 5.0}], {}),
        ([{"memory_mb": 200.0}, {"latency_ms": 5.0}], {}),
        ([{"memory_mb": 200.0}], {"goal": "frontier"}),
    ],
)
def test_otherwise_every_depth_is_measured(limits: list[dict[str, float]], changes: dict[str, Any]) -> None:
    assert depths(*limits, **changes) is None
