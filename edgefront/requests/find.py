"""A job that looks for the best model within limits, from the flags of `edgefront find`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgefront.core.errors import InvalidInput
from edgefront.core.spaces import catalogue
from edgefront.core.units import plain
from edgefront.core.wire.jobs import JobRequest
from edgefront.requests.jobs import parse_request, space_request

EMBEDDING = ("div", "d_embed")
"""Genes that published searches hold fixed, and in which there is most to find."""


def find_request(
    targets: Sequence[Mapping[str, Any]],
    *,
    space: str,
    narrow: Mapping[str, Any],
    model: str | None = None,
    inherit: str | None = None,
    budget: Mapping[str, Any],
    seed: int = 0,
    others: Mapping[str, Any] | None = None,
) -> JobRequest:
    """The request for these targets; each has a device or class, a protocol, and limits (fields of `Limits`).

    A limit on a token is one on generations, which are measured then. The embedding is free unless `narrow` says
    otherwise. `model` and `inherit` as in `requests.jobs.space_request`.
    `others` are further fields of the request. `InvalidInput` names the option where a limit makes no sense.
    """
    limited = [
        {**target, "protocol": _measured(target), "limits": check_limits(target["limits"])} for target in targets
    ]
    genes = {} if model is not None else {gene.name: gene for gene in catalogue.space(space).gene_list}
    free = {gene: list(genes[gene].options) for gene in EMBEDDING if gene in genes and gene not in narrow}
    freed = {gene: values for gene, values in free.items() if len(values) > len(genes[gene].values)}
    narrowed = {**freed, **narrow}
    return parse_request(
        {
            "name": "find",
            "goal": "best_within_limits",
            "space": space_request(space, narrowed, model, inherit),
            "targets": limited,
            "budget": dict(budget),
            "seed": seed,
            **(others or {}),
        }
    )


def _measured(target: Mapping[str, Any]) -> Mapping[str, Any]:
    of_tokens = any(target["limits"].get(name) is not None for name in ("first_token_ms", "token_ms"))
    return {**({"mode": "generate"} if of_tokens else {}), **target["protocol"]}


def published_request(
    targets: Sequence[Mapping[str, Any]],
    *,
    published: Mapping[str, Any],
    variants: Mapping[str, Any],
    budget: Mapping[str, Any],
    seed: int = 0,
) -> JobRequest:
    """The request for the best published model within limits: on each target a generation unless its protocol names
    another mode, in each of the `variants` (fields of `core.wire.published.Variants`).
    """
    return parse_request(
        {
            "name": "published models",
            "goal": "best_within_limits",
            "space": {"published": dict(published)},
            "targets": [
                {
                    **target,
                    "protocol": {"mode": "generate", **target["protocol"]},
                    "limits": check_limits(target["limits"]),
                    "variants": dict(variants),
                }
                for target in targets
            ],
            "budget": dict(budget),
            "seed": seed,
        }
    )


def check_limits(limits: Mapping[str, float | None]) -> dict[str, float]:
    """The limits that are given. `InvalidInput` if there is none, or one is no positive number."""
    kept = {name: value for name, value in limits.items() if value is not None}
    for name, value in kept.items():
        if not (math.isfinite(value) and value > 0):
            unit = "MB" if name == "memory_mb" else "milliseconds"
            option = f"max-{name.replace('_', '-')}"
            raise InvalidInput(
                f"--{option} {plain(value)} is no limit: give {unit} above 0",
                field=option,
                value=value,
                allowed=f"{unit} above 0",
            )
    if not kept:
        raise InvalidInput(
            "without a limit the best model is the largest: give --max-latency-ms, --max-memory-mb or both, or of a "
            "generation --max-first-token-ms or --max-token-ms",
            field="max-latency-ms",
            allowed="at least one limit",
        )
    return kept
