"""Builds requests for jobs and trainings from options of `edgefront find`, `job submit` and `train submit`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from edgefront.core.architectures import catalogue
from edgefront.core.architectures.models import named_models
from edgefront.core.common.errors import InvalidInput, ProtocolError
from edgefront.core.common.units import plain
from edgefront.core.common.validation import Model, checked
from edgefront.core.measurement.protocol import MeasurementProtocol, Runtime
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.schemas.trainings import TrainingView
from edgefront.core.training.evaluation.given_model import architecture_of

DEFAULT_SPACE = "lts-gpt2"
_TARGET = re.compile(rf"(.*?)(?::({'|'.join(get_args(Runtime))})(?::([0-9]+))?)?", re.DOTALL)
"""Form of a target in messages: a device, its runtime, and threads."""
_MODE_FIELDS = ("sequence_length", "memory_length", "new_tokens", "latency")
"""Protocol fields whose defaults depend on the mode."""


def read_request(path: Path, model: type[Model]) -> Model:
    """Reads a request from a JSON file. Raises `InvalidInput` with the name of the wrong field."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON: {error}", field="file", allowed="a JSON file") from None
    if not isinstance(value, dict):
        raise InvalidInput(
            f"{path} contains {type(value).__name__}, but a request must be a JSON object",
            field="file",
            allowed="a JSON object",
        )
    return checked(model, value)


# Options ------------------------------------------------------------------------------------------------------------


def parse_settings(
    texts: Iterable[str], *, option: str = "set", example: str = "population=20 or optimizer.lr=0.001"
) -> dict[str, Any]:
    """Parses settings: `steps=500 optimizer.lr=0.001` → {"steps": 500, "optimizer": {"lr": 0.001}}."""
    allowed = f"NAME=VALUE such as {example}"
    settings: dict[str, Any] = {}
    for path, value in _assignments(texts, option, allowed):
        *parents, name = path.split(".")
        text, node = f"{path}={value}", settings
        if not all((*parents, name)):
            raise _unreadable(option, text, allowed)
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise InvalidInput(f"--{option} {text!r}: {parent} is already set", field=option, value=text)
        node[name] = _scalar(value)
    return settings


def parse_protocol(texts: Iterable[str]) -> dict[str, Any]:
    """Parses protocol fields from `--protocol FIELD=VALUE`."""
    return parse_settings(texts, option="protocol", example="mode=decode")


def parse_narrowing(texts: Iterable[str]) -> dict[str, Any]:
    """Parses ranges of genes: `n_layer=2..6 n_head=2,4` → {"n_layer": {"min": 2, "max": 6}, "n_head": [2, 4]}."""
    genes: dict[str, Any] = {}
    allowed = "GENE=VALUES such as n_layer=2..6, d_model=128..512:64 or n_head=2,4"
    for gene, values in _assignments(texts, "narrow", allowed):
        text = f"{gene}={values}"
        if gene in genes:
            raise _unreadable("narrow", text, f"{gene} once")
        if ".." not in values:
            genes[gene] = [_scalar(value) for value in values.split(",")]
            continue
        bounds, _, step = values.partition(":")
        low, _, high = bounds.partition("..")
        try:
            genes[gene] = {"min": int(low), "max": int(high)} | ({"step": int(step)} if step else {})
        except ValueError:
            raise _unreadable("narrow", text, "whole numbers as in d_model=128..512:64") from None
    return genes


def _assignments(texts: Iterable[str], option: str, allowed: str) -> Iterator[tuple[str, str]]:
    """Splits assignments such as `population=20 mutation=0.3` into names and values."""
    for part in (part for text in texts for part in text.split()):
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise _unreadable(option, part, allowed)
        yield name, value


def _unreadable(option: str, value: str, allowed: str) -> InvalidInput:
    return InvalidInput(
        f"--{option} {value!r} cannot be read: give {allowed}", field=option, value=value, allowed=allowed
    )


def _scalar(text: str) -> Any:
    """Returns the JSON value of the text if the text is valid JSON, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# Targets ------------------------------------------------------------------------------------------------------------


def parse_target(text: str, *, option: str = "target") -> dict[str, Any]:
    """Parses `DEVICE[:RUNTIME[:THREADS]][,FIELD=VALUE…]`. Returns the fields `device` (or, for `class=NAME`,
    `device_class`) and `protocol`.

    Device names may contain colons and commas: only a runtime's name, a number after that name, and protocol fields are
    split off the end.
    """
    fields: dict[str, Any] = {}
    remaining = text
    while True:
        head, comma, last = remaining.rpartition(",")
        field, equals, value = last.partition("=")
        if not (comma and equals and value and field in MeasurementProtocol.model_fields):
            break
        remaining, fields = head, {field: _scalar(value), **fields}
    match = _TARGET.fullmatch(remaining)
    assert match is not None
    device, runtime, threads = match.groups()
    if not device or device == "class=":
        allowed = "DEVICE[:RUNTIME[:THREADS]][,FIELD=VALUE] or class=NAME[:…], as in jetson:llamacpp:2,kv_cache=q8_0"
        raise _unreadable(option, text, allowed)
    protocol: dict[str, Any] = {} if runtime is None else {"runtime": runtime}
    if threads is not None:
        protocol["threads"] = int(threads)
    if device.startswith("class="):
        return {"device_class": device.removeprefix("class="), "protocol": protocol | fields}
    return {"device": device, "protocol": protocol | fields}


def changed_protocol(protocol: MeasurementProtocol, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the protocol with `changes`. Fields that depend on a changed mode or runtime get their defaults."""
    fields = protocol.model_dump(mode="json")
    if changes.get("mode", protocol.mode) != protocol.mode:
        fields = {name: value for name, value in fields.items() if name not in _MODE_FIELDS}
    if {"runtime", "provider"} & changes.keys():
        fields.pop("memory")
    if changes.get("runtime", protocol.runtime) != protocol.runtime:
        fields.pop("kv_cache", None)
    return fields | dict(changes)


def generation_fields(
    mode: str | None, lengths: Mapping[str, int | None], **options: int | str | None
) -> dict[str, Any]:
    """Returns the protocol fields that are set. Each of the `options` (`prompt`, `new`, `context`, `latency`) implies
    mode generate.

    `lengths` are `sequence_length` and `memory_length`; a generation uses `--prompt` and `--context` instead. A textual
    `context` (several contexts) sets no field. Raises `ProtocolError` for an option of another mode.
    """
    options = {name: value for name, value in options.items() if value is not None}
    fields: dict[str, Any] = {name: value for name, value in lengths.items() if value is not None}
    if mode not in (None, "generate") and options:
        option, value = next(iter(options.items()))
        raise ProtocolError(
            f"--{option} needs mode generate, not {mode}", field=option, value=value, allowed="mode generate"
        )
    if mode != "generate" and not options:
        return fields if mode is None else {"mode": mode, **fields}
    for field, option in (("sequence_length", "--prompt"), ("memory_length", "--context")):
        if field in fields:
            raise ProtocolError(
                f"{field}: mode generate needs {option} instead", field=field, value=fields[field], allowed=option
            )
    names = {"prompt": "sequence_length", "new": "new_tokens", "latency": "latency", "context": "memory_length"}
    values = {names[option]: value for option, value in options.items()}
    if isinstance(options.get("context"), str):
        del values["memory_length"]
    return {"mode": "generate", **values}


def parse_contexts(text: str | None) -> list[int]:
    """Parses a text such as `0,1024,4096` into rising numbers of tokens; None gives [0]. Raises `ProtocolError`."""
    if text is None:
        return [0]
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        allowed = "numbers of tokens from 0, with commas between them: 0,1024,4096"
        raise ProtocolError(
            f"--context {text!r} is not a list of numbers of tokens", field="context", value=text, allowed=allowed
        )
    return sorted({int(part) for part in parts})


# Jobs ---------------------------------------------------------------------------------------------------------------


def space_request(
    name: str, narrow: Mapping[str, Any], model: str | None, inherit: str | None = None
) -> dict[str, Any]:
    """Returns the field `space` of a job request: the space `name`, a space around `model` (any form that `given_model`
    accepts), or the submodels of the trained model `inherit` of the service.

    With `model`, the default space means the space that contains the model.
    """
    if model is None:
        return {"name": name, "narrow": dict(narrow)}
    around = {"model": architecture_of(model).canonical} if inherit is None else {"inherit": inherit}
    return {**({} if name == DEFAULT_SPACE else {"name": name}), "narrow": dict(narrow), **around}


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "lts-paper": {
        "algorithm": {"name": "lts", "settings": {"population": 100, "iterations": 30}},
        "proxy": "decoder_parameters",
        "epsilon": 0.0,
    },
}
"""Published searches: LTS (arXiv 2203.02094, Appendix B). The default of the LTS search spaces is the embedding of
these searches (k = 4).
"""


def apply_preset(name: str | None, algorithm: str, settings: Mapping[str, Any], proxy: str) -> dict[str, Any]:
    """Returns the fields of a job request that a preset sets (algorithm, proxy and epsilon), or those from the options
    (algorithm and proxy). Raises `InvalidInput` if both a preset and options are given.
    """
    if name is None:
        return {"algorithm": {"name": algorithm, "settings": dict(settings)}, "proxy": proxy}
    if name not in PRESETS:
        raise _unreadable("preset", name, ", ".join(PRESETS))
    if algorithm != "auto" or proxy != "auto":
        raise _unreadable("preset", name, "the preset alone, or --algorithm and --proxy")
    preset = PRESETS[name]
    algorithm_settings = {**preset["algorithm"]["settings"], **settings}
    return {**preset, "algorithm": {**preset["algorithm"], "settings": algorithm_settings}}


EMBEDDING = ("div", "d_embed")
"""Genes that published searches fix and that `find` searches too, because they offer the largest gains."""


def find_request(
    targets: Sequence[Mapping[str, Any]],
    *,
    space: str,
    narrow: Mapping[str, Any],
    model: str | None = None,
    inherit: str | None = None,
    **fields: Any,
) -> JobRequest:
    """Returns the job request that finds the best model within limits on these targets. Each target has a device or
    device class, a `protocol` and `limits`.

    A limit on a time of a generation implies mode generate. The genes of the embedding are free unless `narrow`
    restricts them. `model` and `inherit`: see `space_request`. `fields`: further fields of the request.
    """
    targets = [
        {**target, "protocol": {"mode": "generate", **target["protocol"]}}
        if any(target["limits"].get(name) is not None for name in ("first_token_ms", "token_ms"))
        else target
        for target in targets
    ]
    genes = {} if model is not None else {gene.name: gene for gene in catalogue.space(space).gene_list}
    free = {gene: list(genes[gene].options) for gene in EMBEDDING if gene in genes}
    freed = {gene: values for gene, values in free.items() if len(values) > len(genes[gene].values)}
    return _best_within_limits(targets, space=space_request(space, {**freed, **narrow}, model, inherit), **fields)


def published_request(
    targets: Sequence[Mapping[str, Any]], *, published: Mapping[str, Any], variants: Mapping[str, Any], **fields: Any
) -> JobRequest:
    """Returns the job request that finds the best published model within limits on these targets. `variants` (fields of
    `core.schemas.published.Variants`) are the formats and runtimes to try. The default mode is generate. `fields`:
    further fields of the request.
    """
    targets = [
        {**target, "protocol": {"mode": "generate", **target["protocol"]}, "variants": dict(variants)}
        for target in targets
    ]
    return _best_within_limits(targets, space={"published": dict(published)}, **fields)


def _best_within_limits(targets: Iterable[Mapping[str, Any]], **fields: Any) -> JobRequest:
    limited = [{**target, "limits": check_limits(target["limits"])} for target in targets]
    return checked(JobRequest, {"goal": "best_within_limits", "targets": limited, **fields})


def check_limits(limits: Mapping[str, float | None]) -> dict[str, float]:
    """Returns the limits that are set. Raises `InvalidInput` if no limit is set or a limit is not positive."""
    set_limits = {name: value for name, value in limits.items() if value is not None}
    for name, value in set_limits.items():
        if not (math.isfinite(value) and value > 0):
            unit = "MB" if name == "memory_mb" else "milliseconds"
            option = f"max-{name.replace('_', '-')}"
            raise InvalidInput(
                f"--{option} {plain(value)} is not a limit: give {unit} above 0",
                field=option,
                value=value,
                allowed=f"{unit} above 0",
            )
    if not set_limits:
        raise InvalidInput(
            "without a limit the best model is the largest: give --max-latency-ms, --max-memory-mb or both, or of a "
            "generation --max-first-token-ms or --max-token-ms",
            field="max-latency-ms",
            allowed="at least one limit",
        )
    return set_limits


# Trainings ----------------------------------------------------------------------------------------------------------


def training_subject(
    architecture: str | None,
    candidate: str | None,
    frontier: str | None,
    selection: Mapping[str, Any],
    *,
    has_start: bool,
) -> dict[str, Any]:
    """Returns the request fields that name the models to train. `selection` applies to a frontier only.

    Returns no fields if no model is named and the training starts from another one (`has_start`), whose model
    `architecture_subject` names.
    """
    options = {"architecture": architecture, "candidate": candidate, "frontier": frontier}
    named = [f"--{name}" for name, value in options.items() if value is not None]
    if len(named) > 1 or not (named or has_start):
        allowed = "--frontier JOB, --candidate CANDIDATE or --architecture MODEL, or --start alone"
        raise InvalidInput(
            f"name the models to train by exactly one of {allowed}; given: {' and '.join(named) or 'none'}",
            field="architecture",
            allowed=allowed,
        )
    selecting = [name.replace("_", "-") for name, value in selection.items() if value is not None]
    if selecting and frontier is None:
        raise InvalidInput(
            f"--{selecting[0]} selects points of a frontier: use it with --frontier JOB",
            field=selecting[0],
            allowed="with --frontier",
        )
    if frontier is not None:
        return {"frontier": {"job": frontier, **selection}}
    if candidate is not None:
        return {"candidate": candidate}
    if architecture is None:
        return {}
    if architecture in named_models():
        return {"model": architecture}
    return {"architecture": architecture_of(architecture).canonical}


def architecture_subject(start: TrainingView) -> dict[str, Any]:
    """Returns the request field that selects the model of `start`. Raises `InvalidInput` if it has no model yet."""
    if start.trained is None:
        raise InvalidInput(
            f"start: training {start.id} has no model to train further yet ({start.kind}, {start.state})",
            field="start",
            value=start.id,
            allowed="a training that is done, or an imported model",
        )
    return {"architecture": start.trained}
