"""A job request from the flags of `edgefront job submit`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from edgefront.core.errors import InvalidInput
from edgefront.core.evaluation.given_model import architecture_of
from edgefront.core.measurement.protocol import MeasurementProtocol, Runtime
from edgefront.core.validation import checked
from edgefront.core.wire.jobs import JobRequest

DEFAULT_SPACE = "lts-gpt2"
_RUNTIMES = get_args(Runtime)
_OF_MODE = ("sequence_length", "memory_length", "new_tokens", "latency")
_SAMPLES = {"set": "population=20", "protocol": "mode=decode"}


def read_request(path: Path) -> JobRequest:
    """A job request from a JSON file; `InvalidInput` names the field."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON: {error}", field="file", allowed="a JSON file") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"{path} holds {type(value).__name__}, not a job", field="file", allowed="a JSON object")
    return parse_request(value)


def parse_request(value: Mapping[str, Any]) -> JobRequest:
    return checked(JobRequest, value)


def space_request(
    name: str, narrow: Mapping[str, Any], model: str | None, inherit: str | None = None
) -> dict[str, Any]:
    """The space of a request; around the model that `model` names, where it is given (`core.evaluation.given_model`),
    or of the parts of the service's model `inherit`.

    Around a model the default space stands for the one that has it.
    """
    if model is None:
        return {"name": name, "narrow": dict(narrow)}
    named = {} if name == DEFAULT_SPACE else {"name": name}
    if inherit is not None:
        return {**named, "narrow": dict(narrow), "inherit": inherit}
    return {**named, "narrow": dict(narrow), "model": architecture_of(model).canonical}


def narrowing(given: Iterable[str]) -> dict[str, Any]:
    """`n_layer=2..6 d_model=128..512:64 n_head=2,4` → {"n_layer": {"min": 2, "max": 6}, …, "n_head": [2, 4]}."""
    genes: dict[str, Any] = {}
    for text in given:
        for part in text.split():
            gene, equals, values = part.partition("=")
            if not (gene and equals and values):
                raise _bad("narrow", part, "GENE=VALUES such as n_layer=2..6, d_model=128..512:64 or n_head=2,4")
            if gene in genes:
                raise _bad("narrow", part, f"{gene} once")
            genes[gene] = _values(part, values)
    return genes


def _values(part: str, values: str) -> Any:
    if ".." not in values:
        return [_scalar(value) for value in values.split(",")]
    bounds, _, step = values.partition(":")
    low, _, high = bounds.partition("..")
    try:
        range_ = {"min": int(low), "max": int(high)}
        if step:
            range_["step"] = int(step)
    except ValueError:
        raise _bad("narrow", part, "whole numbers as in d_model=128..512:64") from None
    return range_


def settings(given: Iterable[str], *, option: str = "set") -> dict[str, Any]:
    """`population=20 mutation=0.3` → {"population": 20, "mutation": 0.3}; `option` is the one that errors name."""
    settings_by_name: dict[str, Any] = {}
    for text in given:
        for part in text.split():
            name, equals, value = part.partition("=")
            if not (name and equals and value):
                raise _bad(option, part, f"NAME=VALUE such as {_SAMPLES[option]}")
            settings_by_name[name] = _scalar(value)
    return settings_by_name


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "lts-paper": {
        "algorithm": {
            "name": "lts",
            "settings": {"population": 100, "parents": 20, "mutants": 40, "crossovers": 40, "iterations": 30},
        },
        "proxy": "decoder_parameters",
        "epsilon": 0.0,
    },
}
"""Published searches. Of LTS (arXiv 2203.02094, Appendix B); its embedding, k = 4, is the default of its spaces."""
_SIZES = {"population", "parents", "mutants", "crossovers"}
"""Settings of LTS that have to fit each other."""


def preset(name: str | None, algorithm: str, given: Mapping[str, Any], proxy: str) -> dict[str, Any]:
    """Algorithm and proxy of a job: those of a preset, with its ε, or those given. `InvalidInput` where both are."""
    if name is None:
        return {"algorithm": {"name": algorithm, "settings": dict(given)}, "proxy": proxy}
    if name not in PRESETS:
        raise _bad("preset", name, ", ".join(PRESETS))
    if algorithm != "auto" or proxy != "auto":
        raise _bad("preset", name, "the preset alone, or --algorithm and --proxy")
    chosen = PRESETS[name]
    published = chosen["algorithm"]["settings"]
    if _SIZES & given.keys():
        # The algorithm shares a population in the published proportions, or adds it up.
        published = {setting: value for setting, value in published.items() if setting not in _SIZES}
    return {**chosen, "algorithm": {**chosen["algorithm"], "settings": {**published, **given}}}


def changed_protocol(protocol: MeasurementProtocol, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The protocol with these fields instead. Where they change the mode or the runtime, what those decide (lengths,
    how memory is measured) is theirs unless it is given."""
    fields = protocol.model_dump(mode="json")
    if changes.get("mode", protocol.mode) != protocol.mode:
        fields = {name: value for name, value in fields.items() if name not in _OF_MODE}
    if {"runtime", "provider"} & changes.keys():
        fields.pop("memory")
    if changes.get("runtime", protocol.runtime) != protocol.runtime:
        fields.pop("kv_cache", None)
    return fields | dict(changes)


def target(given: str, *, option: str = "target") -> dict[str, Any]:
    """`DEVICE[:RUNTIME[:THREADS]][,FIELD=VALUE…]` → the place and the protocol fields; `class=NAME` names a device
    class.

    Device names may contain colons and commas: only the name of a runtime, a number after it, and fields of the
    protocol are split off the end.
    """
    place, fields = _split_fields(given)
    threads = None
    head, colon, tail = place.rpartition(":")
    if colon and tail.isdecimal() and head.rpartition(":")[2] in _RUNTIMES:
        place, threads = head, int(tail)
    head, colon, tail = place.rpartition(":")
    runtime = None
    if colon and tail in _RUNTIMES:
        place, runtime = head, tail
    if not place or place == "class=":
        allowed = "DEVICE[:RUNTIME[:THREADS]][,FIELD=VALUE] or class=NAME[:…], as in jetson:llamacpp:2,kv_cache=q8_0"
        raise _bad(option, given, allowed)
    protocol: dict[str, Any] = {}
    if runtime is not None:
        protocol["runtime"] = runtime
    if threads is not None:
        protocol["threads"] = threads
    protocol |= fields
    if place.startswith("class="):
        return {"device_class": place.removeprefix("class="), "protocol": protocol}
    return {"device": place, "protocol": protocol}


def _split_fields(given: str) -> tuple[str, dict[str, Any]]:
    """`here:llamacpp,kv_cache=f16,weights=q8_0` → the place, and the fields of the protocol after it."""
    fields: dict[str, Any] = {}
    place = given
    while True:
        head, comma, last = place.rpartition(",")
        field, equals, value = last.partition("=")
        if not (comma and equals and value and field in MeasurementProtocol.model_fields):
            return place, fields
        place, fields = head, {field: _scalar(value), **fields}


def _scalar(text: str) -> Any:
    """The JSON value of the text if it is valid JSON, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _bad(option: str, value: str, allowed: str) -> InvalidInput:
    return InvalidInput(
        f"--{option} {value!r} cannot be read: give {allowed}", field=option, value=value, allowed=allowed
    )
