"""Device keys: what a measurement, and a target of a job, belong to: one device, or a class of interchangeable ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

DEVICE = "device:"
"""Stands before the id of a device."""
CLASS = "class:"
"""Stands before the name of a class of devices."""


def key_of_device(device_id: str) -> str:
    return DEVICE + device_id


def key_of_class(name: str) -> str:
    return CLASS + name


def parsed(key: str) -> tuple[Literal["device", "class"], str]:
    """What the key names, and the device's id or the class's name."""
    if key.startswith(DEVICE):
        return "device", key.removeprefix(DEVICE)
    return "class", key.removeprefix(CLASS)


def sorted_out(keys: Iterable[str]) -> tuple[list[str], list[str]]:
    """Ids of devices, and names of classes."""
    names: dict[str, list[str]] = {"device": [], "class": []}
    for key in keys:
        kind, name = parsed(key)
        names[kind].append(name)
    return names["device"], names["class"]
