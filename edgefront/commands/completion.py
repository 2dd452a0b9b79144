"""Shell completion of names from the server or the catalogue. Never slow, never an error."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefront.client import Client

Items = list[tuple[str, str]]
_MANY = 30


def complete_job(incomplete: str) -> Items:
    """Ids of the newest jobs, with their names."""
    found: Items = []
    with suppress(Exception), _client() as client:
        for job in client.jobs.list(limit=_MANY):
            if job.id.startswith(incomplete):
                found.append((job.id, f"{job.name} ({job.state})"))
            if len(found) == _MANY:
                break
    return found


def complete_training(incomplete: str) -> Items:
    """Ids of the newest trainings, with their names."""
    found: Items = []
    with suppress(Exception), _client() as client:
        for training in client.trainings.list(limit=_MANY):
            if training.id.startswith(incomplete):
                found.append((training.id, f"{training.name} ({training.state})"))
            if len(found) == _MANY:
                break
    return found


def complete_device(incomplete: str) -> Items:
    """Names of devices, with their classes."""
    with suppress(Exception), _client() as client:
        return [(item.name, item.device_class) for item in client.devices.list() if item.name.startswith(incomplete)]
    return []


def complete_proxy(incomplete: str) -> Items:
    from edgefront.core.proxies.registry import proxies

    return [(one.name, one.title) for one in proxies().values() if one.name.startswith(incomplete)]


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
        from edgefront.core.spaces.models import named_models

        return [(model.name, model.source) for model in named_models().values() if model.name.startswith(incomplete)]
    return []


def _client() -> Client:
    from edgefront.client import Client

    return Client(timeout_s=1.0, patience_s=0.0)
