"""Device keys, which name one device or a class of interchangeable devices. Every measurement and target has a key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

DEVICE = "device:"
"""Prefix of a device key that names one device by its id."""
CLASS = "class:"
"""Prefix of a device key that names a device class."""


def key_of_device(device_id: str) -> str:
    return DEVICE + device_id


def key_of_class(name: str) -> str:
    return CLASS + name


def parsed(key: str) -> tuple[Literal["device", "class"], str]:
    """Returns a pair: `device` and the device's id, or `class` and the name of the device class."""
    if key.startswith(DEVICE):
        return "device", key.removeprefix(DEVICE)
    return "class", key.removeprefix(CLASS)


def ids_and_classes(keys: Iterable[str]) -> tuple[list[str], list[str]]:
    """Splits device keys into the ids of devices and the names of device classes."""
    names: dict[str, list[str]] = {"device": [], "class": []}
    for key in keys:
        kind, name = parsed(key)
        names[kind].append(name)
    return names["device"], names["class"]
