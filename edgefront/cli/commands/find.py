"""`edgefront find`: limits in, answer out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from edgefront.cli.commands.base import Session
from edgefront.cli.commands.devices import only_device
from edgefront.cli.commands.inherit import parent
from edgefront.cli.commands.options import (
    Explain,
    LawName,
    LimitOptions,
    ModelSpaceOptions,
    ProtocolOptions,
    TrainingBudgetOptions,
)
from edgefront.core.common.number_formats import WeightFormat
from edgefront.core.common.states import JobState
from edgefront.core.measurement.runtimes import Runtime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgefront.core.schemas.jobs import JobRequest, JobView
    from edgefront.core.schemas.recommendations import RecommendationView


@dataclass(frozen=True)
class PublishedOptions:
    """A search among published models: which, by which score, and in which formats."""

    published: Annotated[
        bool, typer.Option("--published", help="Choose among the models of `model list --published` that have a score.")
    ] = False
    score: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE:BENCHMARK",
            help="Score that stands for quality, of one table. Default: mobilellm_r1_base:CommonSense Avg.",
        ),
    ] = None
    kind: Annotated[str | None, typer.Option(help="base, instruct or any. Default: any.")] = None
    licence: Annotated[
        str | None,
        typer.Option(help="Only models with this licence, or permissive: apache-2.0, mit and the like."),
    ] = None
    min_context: Annotated[int | None, typer.Option(min=1, help="Only models of this context length at least.")] = None
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
        """Fields of `core.schemas.published.PublishedRequest` that are given."""
        given = {"score": self.score, "kind": self.kind, "licence": self.licence, "min_context": self.min_context}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def variants(self) -> dict[str, list[str]]:
        """Fields of `core.schemas.published.Variants` that are given, without the runtimes."""
        return {
            name: comma_separated(given)
            for name, given in (("formats", self.formats), ("kv_caches", self.kv))
            if given is not None
        }


def comma_separated(given: str) -> list[str]:
    """`a, b` → ["a", "b"]."""
    return [part.strip() for part in given.split(",") if part.strip()]


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
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of a pass. Default: 1.")] = None,
    how: ProtocolOptions = ProtocolOptions(),
    within: ModelSpaceOptions = ModelSpaceOptions(),
    training: TrainingBudgetOptions = TrainingBudgetOptions(),
    law: LawName = None,
    among: PublishedOptions = PublishedOptions(),
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

    Searches by prediction and measures only what can be the answer. Prints the model with the best predicted
    perplexity that was measured within the limits, beside --model or the largest stock model under the same limits,
    which is the answer itself unless another is better for sure. If nothing fits: what comes nearest, and which limit
    to move by how much (exit code 10). With --published it chooses among models that exist, by a published score, their
    formats and runtimes.
    """
    from edgefront.cli import exits
    from edgefront.cli.show.recommendation import commands, show
    from edgefront.client.requests.jobs import check_limits, find_request, published_request, target
    from edgefront.core.common.errors import InvalidInput

    limits = limit.limits
    check_limits(limits)  # before the server is asked for its devices
    fields, budget = how.fields, training.fields
    if devices and len(devices) > 1:
        raise InvalidInput(
            f"find answers for one device, not for {' and '.join(devices)}",
            field="device",
            allowed="one; `edgefront job submit` takes several --target, and `edgefront compare` compares them",
        )
    device = devices[0] if devices else None
    where = target(device or only_device(session, "--device"), option="device")
    named = where.pop("protocol")
    for option, value in (("runtime", runtime), ("threads", threads)):
        if value and option in named:
            raise InvalidInput(
                f"--device {device} and --{option} both say the {option}: leave one out", field=option, allowed="once"
            )
    _refuse_mixed(among, within, training, law)
    runtimes = [name for text in runtime or [] for name in comma_separated(text)]
    runtimes = runtimes or ([named.pop("runtime")] if "runtime" in named else [])
    protocol = fields | ({} if threads is None else {"threads": threads}) | named
    if among.published:
        runtimes = runtimes or _runtimes_of(session, where)
        request = published_request(
            [{**where, "protocol": protocol, "limits": limits}],
            published=among.request,
            variants={"runtimes": list(dict.fromkeys(runtimes)), **among.variants},
            budget={"candidates": candidates, "minutes": minutes},
            seed=seed,
        )
        _find_published(session, request, explain)
        return
    request = find_request(
        [
            {**where, "protocol": {**protocol, "runtime": name}, "limits": limits}
            for name in dict.fromkeys(runtimes or ["onnxruntime"])
        ],
        space=within.space,
        narrow=within.narrowed,
        model=within.model,
        inherit=parent(session, within),
        budget={"candidates": candidates, "minutes": minutes},
        seed=seed,
        others={**budget, "proxy_settings": {} if law is None else {"law": law}},
    )
    ended = _searched(session, request)
    views: list[RecommendationView] = [
        session.watching_client.jobs.recommendation(ended.id, target=searched.id) for searched in ended.targets
    ]

    def say() -> None:
        for searched, view in zip(ended.targets, views, strict=True):
            show(view, session.out, explain=explain)
            if explain and searched.note:
                session.note(f"{searched.name}: {searched.note}")

    answers = [{"recommendation": view, "commands": commands(view)} for view in views]
    session.put({"job": ended.id, "state": ended.state, "targets": answers}, say)
    if any(view.recommended is None for view in views):
        raise typer.Exit(exits.NOTHING_FITS)


def _find_published(session: Session, request: JobRequest, explain: bool) -> None:
    """Chooses among published models, and shows the choice."""
    from edgefront.cli import exits
    from edgefront.cli.show.published import show

    ended = _searched(session, request)
    view = session.watching_client.jobs.choices(ended.id)

    def say() -> None:
        show(view, session.out, explain=explain)
        for searched in ended.targets:
            if explain and searched.note:
                session.note(f"{searched.name}: {searched.note}")

    session.put({"job": ended.id, "state": ended.state, "choices": view}, say)
    if any(each.recommended is None for each in view.every):
        raise typer.Exit(exits.NOTHING_FITS)


def _refuse_mixed(
    among: PublishedOptions, within: ModelSpaceOptions, training: TrainingBudgetOptions, law: str | None
) -> None:
    """Raises `InvalidInput` where an option of the other kind of search is given."""
    from edgefront.core.common.errors import InvalidInput

    space = {"model": within.model, "inherit": within.inherit, "narrow": within.narrow, "law": law, **training.given}
    given = [name for name, value in space.items() if value] if among.published else [*among.request, *among.variants]
    if not given:
        return
    option = {"kv_caches": "kv"}.get(given[0], given[0].replace("_", "-"))
    if among.published:
        of, allowed = "for architectures: published models are as they are", f"no --{option} beside --published"
    else:
        of, allowed = "among published models: add --published", "--published"
    raise InvalidInput(f"--{option} is of a search {of}", field=option, allowed=allowed)


def _runtimes_of(session: Session, where: Mapping[str, Any]) -> list[str]:
    """Those of llama.cpp and ONNX Runtime that a device has, or one of its class."""
    devices = [
        device
        for device in session.client.devices.list()
        if where.get("device") in (device.id, device.name) or where.get("device_class") == device.device_class
    ]
    had = {runtime.runtime for device in devices for runtime in device.facts.runtimes}
    return [name for name in ("llamacpp", "onnxruntime") if name in had] or ["onnxruntime"]


def _searched(session: Session, request: JobRequest) -> JobView:
    """The job of this request once it has ended."""
    job = session.client.jobs.create(request)
    session.note(f"searching: {job.id}, {session.client.url}/jobs/{job.id}")
    session.note(f"goes on without this command; the answer then, and why: edgefront job recommend {job.id} --explain")
    return followed(session, job)


def followed(session: Session, job: JobView) -> JobView:
    """The job once it has ended, with its progress shown. `EdgefrontError` if it failed."""
    from edgefront.cli.show import progress
    from edgefront.core.common.errors import EdgefrontError

    client = session.watching_client
    if session.json:
        ended: JobView = client.jobs.wait(job.id)
    else:
        ended = progress.show(progress.views(client, job.id), session.err) or job
    if ended.state == JobState.FAILED:
        notes = "; ".join(f"{target.name}: {target.note}" for target in ended.targets if target.note)
        raise EdgefrontError(f"job {job.id} failed: {ended.reason or notes or 'see its targets'}")
    return ended
