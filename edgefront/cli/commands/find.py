"""`edgefront find`: finds the best model within limits on latency and memory on a device."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from edgefront.cli import exits
from edgefront.cli.commands.devices import only_device
from edgefront.cli.commands.inherit import parent_training
from edgefront.cli.commands.jobs import require_success
from edgefront.cli.commands.options import (
    Explain,
    LawName,
    LimitOptions,
    ProtocolOptions,
    SpaceOptions,
    TrainingBudgetOptions,
)
from edgefront.cli.session import Session
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import WeightFormat
from edgefront.core.measurement.runtimes import Runtime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edgefront.core.schemas.agent import DeviceFacts
    from edgefront.core.schemas.jobs import JobRequest, JobView


@dataclass(frozen=True)
class PublishedOptions:
    """Options for a search among published models: which models, which score compares them, which weight formats."""

    published: Annotated[
        bool, typer.Option("--published", help="Choose among the models of `model list --published` that have a score.")
    ] = False
    score: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE:BENCHMARK",
            help="Score that stands for quality, of one table. Default: one that most models of the kind have.",
        ),
    ] = None
    kind: Annotated[
        str | None,
        typer.Option(help="base (continues a text), instruct (an assistant) or any. Default: base; any with --score."),
    ] = None
    licence: Annotated[
        str | None,
        typer.Option(help="Only models with this licence, or permissive: apache-2.0, mit and the like."),
    ] = None
    min_context: Annotated[int | None, typer.Option(min=1, help="Only models with at least this context length.")] = (
        None
    )
    formats: Annotated[
        str | None,
        typer.Option(
            help=f"Formats of weights, with commas: {', '.join(get_args(WeightFormat))}. "
            "Default: 8, 4 bits (of llamacpp q8_0, q4_0)."
        ),
    ] = None
    kv: Annotated[
        str | None, typer.Option("--kv", help="Formats of llama.cpp's cache, with commas: f16, q8_0 … Default: f16.")
    ] = None

    @property
    def request(self) -> dict[str, Any]:
        """Returns the fields of `core.schemas.published.PublishedRequest` that are set."""
        options = {"score": self.score, "kind": self.kind, "licence": self.licence, "min_context": self.min_context}
        return {name: value for name, value in options.items() if value is not None}

    @property
    def variants(self) -> dict[str, list[str]]:
        """Returns the fields of `core.schemas.published.Variants` that are set, without the runtimes."""
        options = {"formats": self.formats, "kv_caches": self.kv}
        return {name: split_commas(text) for name, text in options.items() if text is not None}


def split_commas(text: str) -> list[str]:
    """Splits a list with commas: `a, b` → ["a", "b"]."""
    return [part.strip() for part in text.split(",") if part.strip()]


def find(
    session: Session,
    limit: LimitOptions = LimitOptions(),
    devices: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            metavar="DEVICE[:RUNTIME[:THREADS]][,FIELD=VALUE]",
            help="Device to measure on: one; class=NAME for a device class. Default: the only active device.",
        ),
    ] = None,
    runtime: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{', '.join(get_args(Runtime))}; several with commas. Each has an answer. Default: onnxruntime; with "
            "--published llamacpp and onnxruntime, as far as the device has them."
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of a pass. Default: 1; --published on this machine: 1 and all cores."),
    ] = None,
    measurement: ProtocolOptions = ProtocolOptions(),
    space: SpaceOptions = SpaceOptions(),
    training: TrainingBudgetOptions = TrainingBudgetOptions(),
    law: LawName = None,
    published: PublishedOptions = PublishedOptions(),
    candidates: Annotated[
        int, typer.Option(min=1, help="Maximum number of candidates; the search ends sooner if little can be gained.")
    ] = 60,
    minutes: Annotated[
        float | None, typer.Option(help="Maximum wall-clock minutes of the search, from its first launch on.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed proposes the same candidates.")] = 0,
    explain: Explain = False,
) -> None:
    """Find the best model within limits on a device, from a few dozen launches.

    Searches by prediction and measures only models that can be the answer. Prints the measured model within the limits
    with the best predicted perplexity, beside --model or the largest stock model under the same limits, which is itself
    the answer unless another is certainly better. If nothing fits: the nearest model, and which limit to move by how
    much (exit code 10). With --published it chooses among published models, by a published score, their formats and
    runtimes.
    """
    from edgefront.client import requests
    from edgefront.client.show import published as published_tables
    from edgefront.client.show import recommendation

    limits = limit.limits
    requests.check_limits(limits)  # before requesting the devices from the server
    if devices and len(devices) > 1:
        raise InvalidInput(
            f"find needs exactly one device, not {' and '.join(devices)}",
            field="device",
            allowed="one; `edgefront job submit` takes several --target, and `edgefront compare` compares them",
        )
    protocol, budget = measurement.fields, training.fields
    device = devices[0] if devices else None
    target = requests.parse_target(device or only_device(session, "--device"), option="device")
    device_protocol = target.pop("protocol")
    for option, value in (("runtime", runtime), ("threads", threads)):
        if value and option in device_protocol:
            raise InvalidInput(
                f"--device {device} and --{option} both set the {option}: omit one", field=option, allowed="once"
            )
    _check_kind(published, space, training, law)
    runtimes = [name for text in runtime or [] for name in split_commas(text)]
    if "runtime" in device_protocol:
        runtimes = runtimes or [device_protocol.pop("runtime")]
    protocol |= ({} if threads is None else {"threads": threads}) | device_protocol
    common: dict[str, Any] = {"budget": {"candidates": candidates, "minutes": minutes}, "seed": seed}
    if published.published:
        facts = _facts_of(session, target)
        runtimes = runtimes or _installed_runtimes(facts)
        counts = [protocol["threads"]] if "threads" in protocol else _thread_counts(facts)
        request = requests.published_request(
            [{**target, "protocol": {**protocol, "threads": count}, "limits": limits} for count in counts],
            published=published.request,
            variants={"runtimes": list(dict.fromkeys(runtimes)), **published.variants},
            **common,
        )
    else:
        request = requests.find_request(
            [
                {**target, "protocol": {**protocol, "runtime": name}, "limits": limits}
                for name in dict.fromkeys(runtimes or ["onnxruntime"])
            ],
            space=space.space,
            narrow=space.narrowed,
            model=space.model,
            inherit=parent_training(session, space),
            proxy_settings={} if law is None else {"law": law},
            **budget,
            **common,
        )
    job = _run(session, request)
    notes = {target.id: f"{target.name}: {target.note}" for target in job.targets if explain and target.note}
    result: dict[str, Any] = {"job": job.id, "state": job.state}
    if published.published:
        choices = session.watching_client.jobs.choices(job.id)
        found = all(view.recommended is not None for view in choices.every)

        def show() -> None:
            published_tables.show(choices, session.out, explain=explain)
            for note in notes.values():
                session.note(note)

        session.put({**result, "choices": choices}, show)
    else:
        views = [session.watching_client.jobs.recommendation(job.id, target=target.id) for target in job.targets]
        found = all(view.recommended is not None for view in views)

        def show() -> None:
            for view in views:
                recommendation.show(view, session.out, explain=explain)
                if view.target_id in notes:
                    session.note(notes[view.target_id])

        answers = [{"recommendation": view, "commands": recommendation.commands(view)} for view in views]
        session.put({**result, "targets": answers}, show)
    if not found:
        raise typer.Exit(exits.NOTHING_FITS)


def _check_kind(
    published: PublishedOptions, space: SpaceOptions, training: TrainingBudgetOptions, law: str | None
) -> None:
    """Raises `InvalidInput` if a search of architectures has an option for published models, or vice versa."""
    architecture_options = {
        "model": space.model,
        "inherit": space.inherit,
        "narrow": space.narrow,
        "law": law,
        **training.values,
    }
    if published.published:
        wrong = [name for name, value in architecture_options.items() if value]
    else:
        wrong = [*published.request, *published.variants]
    if not wrong:
        return
    option = {"kv_caches": "kv"}.get(wrong[0], wrong[0].replace("_", "-"))
    if published.published:
        kind, allowed = "for architectures: published models are as they are", f"no --{option} beside --published"
    else:
        kind, allowed = "among published models: add --published", "--published"
    raise InvalidInput(f"--{option} is of a search {kind}", field=option, allowed=allowed)


def _facts_of(session: Session, target: Mapping[str, Any]) -> list[DeviceFacts]:
    """Returns the facts of the device, or of all devices of the class."""
    return [
        device.facts
        for device in session.client.devices.list()
        if target.get("device") in (device.id, device.name) or target.get("device_class") == device.device_class
    ]


def _thread_counts(facts: Iterable[DeviceFacts]) -> list[int]:
    """Returns 1, and all cores if this machine is the device: models that need them are measured with all cores."""
    return sorted({1, *(each.cores for each in facts if each.hostname == socket.gethostname())})


def _installed_runtimes(facts: Iterable[DeviceFacts]) -> list[str]:
    """Returns those of llama.cpp and ONNX Runtime that one of the devices has installed."""
    installed = {runtime.runtime for each in facts for runtime in each.runtimes}
    return [name for name in ("llamacpp", "onnxruntime") if name in installed] or ["onnxruntime"]


def _run(session: Session, request: JobRequest) -> JobView:
    """Submits the job and shows its progress until the job has ended. Raises `EdgefrontError` if the job failed."""
    from edgefront.client.show import progress

    created = session.client.jobs.create(request)
    session.note(f"searching: {created.id}, {session.client.url}/jobs/{created.id}")
    session.note(f"the search continues. Its answer: edgefront job recommend {created.id} --explain")
    client = session.watching_client
    job: JobView = created
    if session.json:
        job = client.jobs.wait(created.id)
    else:
        job = progress.show(progress.views(lambda: client.jobs.get(created.id)), session.err) or created
    require_success(job)
    return job
