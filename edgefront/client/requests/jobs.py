"""Requests for jobs from the flags of `edgefront job submit` and `edgefront find`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from edgefront.core.architectures import catalogue
from edgefront.core.common.errors import InvalidInput, ProtocolError
from edgefront.core.common.units import plain
from edgefront.core.common.validation import Model, checked
from edgefront.core.measurement.protocol import MeasurementProtocol, Runtime
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.training.evaluation.given_model import architecture_of

DEFAULT_SPACE = "lts-gpt2"
_PLACE = re.compile(rf"(.*?)(?::({'|'.join(get_args(Runtime))})(?::([0-9]+))?)?", re.DOTALL)
"""A device, its runtime, and threads."""
_OF_MODE = ("sequence_length", "memory_length", "new_tokens", "latency")
_SAMPLES = {"set": "population=20", "protocol": "mode=decode"}


def read_request(path: Path, model: type[Model]) -> Model:
    """A request from a JSON file; `InvalidInput` names the field."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON: {error}", field="file", allowed="a JSON file") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"{path} holds {type(value).__name__}, not a request", field="file", allowed="a JSON object")
    return checked(model, value)


def assignments(given: Iterable[str], option: str, allowed: str) -> Iterator[tuple[str, str]]:
    """`population=20 mutation=0.3` → names and values; errors name the `option` and what it takes."""
    for text in given:
        for part in text.split():
            name, equals, value = part.partition("=")
            if not (name and equals and value):
                raise unreadable(option, part, allowed)
            yield name, value


def unreadable(option: str, value: str, allowed: str) -> InvalidInput:
    return InvalidInput(
        f"--{option} {value!r} cannot be read: give {allowed}", field=option, value=value, allowed=allowed
    )


def scalar(text: str) -> Any:
    """The JSON value of the text if it is valid JSON, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def space_request(
    name: str, narrow: Mapping[str, Any], model: str | None, inherit: str | None = None
) -> dict[str, Any]:
    """The space of a request; around the model that `model` names, where it is given
    (`core.training.evaluation.given_model`), or of the parts of the service's model `inherit`.

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
    allowed = "GENE=VALUES such as n_layer=2..6, d_model=128..512:64 or n_head=2,4"
    for gene, values in assignments(given, "narrow", allowed):
        if gene in genes:
            raise unreadable("narrow", f"{gene}={values}", f"{gene} once")
        genes[gene] = _values(f"{gene}={values}", values)
    return genes


def _values(part: str, values: str) -> Any:
    if ".." not in values:
        return [scalar(value) for value in values.split(",")]
    bounds, _, step = values.partition(":")
    low, _, high = bounds.partition("..")
    try:
        range_ = {"min": int(low), "max": int(high)}
        if step:
            range_["step"] = int(step)
    except ValueError:
        raise unreadable("narrow", part, "whole numbers as in d_model=128..512:64") from None
    return range_


def settings(given: Iterable[str], *, option: str = "set") -> dict[str, Any]:
    """`population=20 mutation=0.3` → {"population": 20, "mutation": 0.3}; `option` is the one that errors name."""
    named = assignments(given, option, f"NAME=VALUE such as {_SAMPLES[option]}")
    return {name: scalar(value) for name, value in named}


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
        raise unreadable("preset", name, ", ".join(PRESETS))
    if algorithm != "auto" or proxy != "auto":
        raise unreadable("preset", name, "the preset alone, or --algorithm and --proxy")
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
    match = _PLACE.fullmatch(place)
    assert match is not None
    place, runtime, threads = match.groups()
    if not place or place == "class=":
        allowed = "DEVICE[:RUNTIME[:THREADS]][,FIELD=VALUE] or class=NAME[:…], as in jetson:llamacpp:2,kv_cache=q8_0"
        raise unreadable(option, given, allowed)
    named = {"runtime": runtime, "threads": None if threads is None else int(threads)}
    protocol = {name: value for name, value in named.items() if value is not None} | fields
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
        place, fields = head, {field: scalar(value), **fields}


def generation_fields(
    mode: str | None, lengths: Mapping[str, int | None], **options: int | str | None
) -> dict[str, Any]:
    """Fields of the protocol, those that are given alone. `options` are `prompt`, `new`, `context` and `latency`: any
    of them makes the mode generate.

    `lengths` are the fields `sequence_length` and `memory_length`, of which a generation has other names.
    `ProtocolError` that names the option where the two do not go together.
    """
    given = {name: value for name, value in options.items() if value is not None}
    kept = {name: value for name, value in lengths.items() if value is not None}
    if mode not in (None, "generate") and given:
        option = next(iter(given))
        raise ProtocolError(
            f"--{option} is of mode generate, not of {mode}", field=option, value=given[option], allowed="mode generate"
        )
    if mode != "generate" and not given:
        return kept if mode is None else {"mode": mode, **kept}
    if kept:
        field, option = next(
            (field, option)
            for field, option in (("sequence_length", "--prompt"), ("memory_length", "--context"))
            if field in kept
        )
        raise ProtocolError(
            f"{field}: a generation is given by {option}", field=field, value=kept[field], allowed=option
        )
    names = {"prompt": "sequence_length", "new": "new_tokens", "latency": "latency"}
    return {"mode": "generate", **{names[option]: value for option, value in given.items() if option in names}} | (
        {"memory_length": given["context"]} if isinstance(given.get("context"), int) else {}
    )


def contexts(text: str | None) -> list[int]:
    """`0,1024,4096` as rising numbers of tokens; [0] without a text. `ProtocolError` for anything else."""
    if text is None:
        return [0]
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        allowed = "numbers of tokens from 0, with commas between them: 0,1024,4096"
        raise ProtocolError(
            f"--context {text!r} is not a list of lengths", field="context", value=text, allowed=allowed
        )
    return sorted({int(part) for part in parts})


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
    limited = []
    for target in targets:
        limits = check_limits(target["limits"])
        mode = {"mode": "generate"} if {"first_token_ms", "token_ms"} & limits.keys() else {}
        limited.append({**target, "protocol": {**mode, **target["protocol"]}, "limits": limits})
    genes = {} if model is not None else {gene.name: gene for gene in catalogue.space(space).gene_list}
    free = {gene: list(genes[gene].options) for gene in EMBEDDING if gene in genes and gene not in narrow}
    freed = {gene: values for gene, values in free.items() if len(values) > len(genes[gene].values)}
    narrowed = {**freed, **narrow}
    return checked(
        JobRequest,
        {
            "name": "find",
            "goal": "best_within_limits",
            "space": space_request(space, narrowed, model, inherit),
            "targets": limited,
            "budget": dict(budget),
            "seed": seed,
            **(others or {}),
        },
    )


def published_request(
    targets: Sequence[Mapping[str, Any]],
    *,
    published: Mapping[str, Any],
    variants: Mapping[str, Any],
    budget: Mapping[str, Any],
    seed: int = 0,
) -> JobRequest:
    """The request for the best published model within limits: on each target a generation unless its protocol names
    another mode, in each of the `variants` (fields of `core.schemas.published.Variants`).
    """
    return checked(
        JobRequest,
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
        },
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
