"""Shell completion of names from the server or the catalogue. Never slow, never an error."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, get_args

if TYPE_CHECKING:
    from edgefront.client import Client

Items = list[tuple[str, str]]
_MANY = 30


def complete_job(incomplete: str) -> Items:
    """Ids of the newest jobs, with their names."""
    with suppress(Exception), _client() as client:
        return _begin(incomplete, ((job.id, f"{job.name} ({job.state})") for job in client.jobs.list(limit=_MANY)))
    return []


def complete_candidate(incomplete: str) -> Items:
    """Candidates on the frontiers of the newest job that has one, with their latency."""
    with suppress(Exception), _client() as client:
        for job in islice(client.jobs.list(limit=_MANY), _MANY):
            if any(target.frontier_size for target in job.targets):
                candidates = client.candidates.list(job.id, on_frontier=True, sort="latency_ms", limit=_MANY)
                return _begin(
                    incomplete,
                    ((candidate.id, f"{candidate.latency_ms:.1f} ms ({job.name})") for candidate in candidates),
                )
    return []


def complete_training(incomplete: str) -> Items:
    """Ids of the newest trainings, with their names."""
    with suppress(Exception), _client() as client:
        return _begin(
            incomplete,
            ((training.id, f"{training.name} ({training.state})") for training in client.trainings.list(limit=_MANY)),
        )
    return []


def complete_device(incomplete: str) -> Items:
    """Names of devices, with their classes."""
    with suppress(Exception), _client() as client:
        return [(item.name, item.device_class) for item in client.devices.list() if item.name.startswith(incomplete)]
    return []


def complete_recipe(incomplete: str) -> Items:
    """Names of the recipes."""
    with suppress(Exception):
        from edgefront.core.recipes.papers import recipes

        return _begin(incomplete, ((recipe.name, recipe.title) for recipe in recipes().values()))
    return []


def complete_algorithm(incomplete: str) -> Items:
    """Names of the search algorithms."""
    from edgefront.core.wire.jobs import ALGORITHMS

    return _begin(incomplete, ((name, "") for name in ALGORITHMS))


def complete_mode(incomplete: str) -> Items:
    """Kinds of pass."""
    from edgefront.core.measurement.protocol import Mode

    return _begin(incomplete, ((mode, "") for mode in get_args(Mode)))


def complete_proxy(incomplete: str) -> Items:
    from edgefront.core.proxies.registry import proxies

    return [(proxy.name, proxy.title) for proxy in proxies().values() if proxy.name.startswith(incomplete)]


def complete_law(incomplete: str) -> Items:
    """Names of the quality laws that come along."""
    with suppress(Exception):
        from edgefront.core.quality.shipped import shipped_laws

        return [(name, law.origin.title) for name, law in shipped_laws().items() if name.startswith(incomplete)]
    return []


def complete_space(incomplete: str) -> Items:
    """Names of the catalogue's search spaces."""
    with suppress(Exception):
        from edgefront.core.spaces.catalogue import spaces

        return [(space.name, space.title) for space in spaces().values() if space.name.startswith(incomplete)]
    return []


def complete_model(incomplete: str) -> Items:
    """Names of the catalogue's models; if there is none, the shell completes file names."""
    with suppress(Exception):
        from edgefront.core.published import published_models
        from edgefront.core.spaces.models import named_models

        named = [(model.name, model.source) for model in named_models().values()]
        return _begin(incomplete, [*named, *((model.id, model.kind) for model in published_models().values())])
    return []


def _begin(incomplete: str, items: Iterable[tuple[str, str]]) -> Items:
    """The first that begin so."""
    return list(islice((item for item in items if item[0].startswith(incomplete)), _MANY))


def _client() -> Client:
    from edgefront.client import Client

    return Client(timeout_s=1.0, patience_s=0.0)
