"""Measures the recommended model of a report again, and says whether the figures agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, log1p
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput, NotFound, TooLarge
from edgefront.core.common.units import MB
from edgefront.core.common.validation import checked, existing, invalid_input, printable
from edgefront.core.measurement.record import Milliseconds
from edgefront.core.measurement.statistics import LaunchVariance, LogLaunches, relative_half_width
from edgefront.core.schemas.candidates import CandidateView
from edgefront.core.schemas.jobs import TargetView
from edgefront.core.schemas.messages import View
from edgefront.core.schemas.reports import MAX_REPORT_BYTES, Report
from edgefront.core.search.pareto.options import MEMORY_SPREAD, Figure, Ratio

if TYPE_CHECKING:
    from edgefront.cli.workflows.measure import Measured
    from edgefront.core.measurement.record import Fact
    from edgefront.core.schemas.agent import DeviceFacts


def read_report(path: Path) -> Report:
    """A report from its file. `InvalidInput` that says what is wrong with it, `TooLarge`, `NotFound`."""
    if path.is_dir():
        path /= "report.json"
    try:
        with path.open("rb") as file:
            content = file.read(MAX_REPORT_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no {path}: `edgefront report write JOB` writes such a file") from None
    if len(content) > MAX_REPORT_BYTES:
        raise TooLarge(f"{path} is no report: it has more than {MAX_REPORT_BYTES >> 20} MiB")
    try:
        return Report.model_validate_json(content)
    except ValidationError as error:
        fault = invalid_input(error, InvalidInput)
    raise InvalidInput(
        f"{path} is not a report that this release reads: {printable(fault.detail)}",
        field=fault.field,
        allowed="report.json as `edgefront report write` wrote it",
    )


class Figures(View):
    """What a report says of the recommended model, within the bounds of what can be measured."""

    latency_ms: Milliseconds
    latency_half_width_ms: Annotated[float, Field(ge=0, le=3.6e6, allow_inf_nan=False)] | None
    first_token_ms: Milliseconds | None
    token_ms: Milliseconds | None
    memory_bytes: Annotated[int, Field(ge=1, le=1 << 50)]
    launches: Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True)
class Subject:
    """What is measured again, and what the report says of it."""

    target: TargetView
    candidate: CandidateView
    architecture: Architecture
    figures: Figures


def subject_of(report: Report, target: str | None) -> Subject:
    """The recommended model of a target (its id or name; None: the first that has one). `NotFound` where there is none,
    `InvalidInput` where what the report says of it cannot be.
    """
    chosen = [each for each in report.recommended if target in (None, each[0].id, each[0].name)]
    if not chosen:
        names = [printable(each.name) for each, _ in report.recommended]
        if target is None or not names:
            raise NotFound("nothing is recommended in this report, so there is nothing to measure again")
        raise NotFound(
            f"the report has no target {target!r} with a recommended model; {existing(target, names)}", field="target"
        )
    of_target, candidate = chosen[0]
    architecture = Architecture.parse(candidate.architecture)
    if architecture.digest != candidate.digest:
        raise InvalidInput(
            f"the report was changed: the description of {candidate.id} has another digest than its figures",
            field="digest",
            value=candidate.digest,
            allowed=architecture.digest,
        )
    figures = checked(Figures, candidate.model_dump(include=set(Figures.model_fields)))
    return Subject(of_target, candidate, architecture, figures)


@dataclass(frozen=True)
class Compared:
    """A figure of the report, and the same here."""

    name: str
    unit: str
    reported: float
    here: float
    ratio: Ratio
    """Here over reported, with the 95 % interval of both."""
    agrees: bool

    def to_json(self) -> dict[str, Any]:
        """The document of `edgefront report verify --json`; milliseconds, and bytes of memory."""
        factor = MB if self.unit == "MB" else 1
        return {
            "figure": self.name,
            "reported": factor * self.reported,
            "here": factor * self.here,
            "ratio": self.ratio.value,
            "ratio_low": self.ratio.low,
            "ratio_high": self.ratio.high,
            "agrees": self.agrees,
        }


def compare(figures: Figures, measured: Measured, epsilon: float) -> list[Compared]:
    """Each figure of the report against the launches here (two or more): they agree unless they differ for certain by
    more than `epsilon`, the relative difference that the job counts as none.

    Intervals are those of a latency (`core.measurement.statistics`) and of a peak memory. Where the report has none,
    launches there are taken to scatter as those here.
    """
    times: dict[str, tuple[float | None, float | None, list[float]]] = {
        "latency": (
            figures.latency_ms,
            figures.latency_half_width_ms,
            [median(launch.timed.samples_ms) for launch in measured.launches],
        )
    }
    made = [launch.generation for launch in measured.launches if launch.generation is not None]
    if made:
        times["first token"] = figures.first_token_ms, None, [median(each.first_token_ms) for each in made]
        times["further token"] = figures.token_ms, None, [median(each.token_ms) for each in made]
    compared = []
    for name, (reported_ms, half_width_ms, medians) in times.items():
        if reported_ms is None:
            continue
        spread = LogLaunches.of(medians)
        variance = LaunchVariance(spread.sum_squares, spread.count - 1)
        reported = Figure.plus_minus(reported_ms, half_width_ms)
        if half_width_ms is None:
            reported = Figure(reported_ms, relative_half_width(figures.launches, variance))
        here = Figure(median(medians), relative_half_width(len(medians), variance))
        compared.append(_compared(name, "ms", reported, here, epsilon))
    memory = Figure(figures.memory_bytes / MB, MEMORY_SPREAD)
    peak = Figure(measured.report()["memory"]["peak_bytes"] / MB, MEMORY_SPREAD)
    return [*compared, _compared("peak memory", "MB", memory, peak, epsilon)]


def _compared(name: str, unit: str, reported: Figure, here: Figure, epsilon: float) -> Compared:
    ratio = here.over(reported)
    certain = abs(log(ratio.value)) - (ratio.spread or 0.0)
    return Compared(name, unit, reported.value, here.value, ratio, agrees=certain <= log1p(epsilon))


def in_words(compared: Compared) -> str:
    """`latency: 21.4 ms reported, 21.9 ms here, no measurable difference in latency (± 2.3 %)`."""
    more, less = ("longer", "shorter") if compared.unit == "ms" else ("more", "less")
    said = compared.ratio.in_percent(compared.name, more, less)
    return (
        f"{compared.name}: {compared.reported:.4g} {compared.unit} reported, {compared.here:.4g} {compared.unit} here; "
        f"{said}: {'agrees' if compared.agrees else 'differs'}"
    )


@dataclass(frozen=True)
class Place:
    """How this machine differs from those that measured what the report says."""

    differences: Mapping[str, tuple[str, str]]
    """What differs of the class of the device → there and here; empty where it is of the same class."""
    others: Mapping[str, tuple[str, str]]
    """What else may explain a difference, such as versions, likewise."""
    known: bool = True
    """Whether the report has the device."""


def place(report: Report, subject: Subject, here: DeviceFacts, measured: Measured) -> Place:
    """Compares this machine with the device whose launch of the model is the latest in the report."""
    from edgefront.agents.device.probe import class_facts

    launches = [launch for launch in report.launches.get(subject.candidate.id, ()) if launch.result is not None]
    devices = {device.id: device for device in report.devices}
    device = next((devices[each.device_id] for each in reversed(launches) if each.device_id in devices), None)
    others = _different(
        _texts(launches[-1].result.environment) if launches and launches[-1].result else {},
        _texts(measured.launches[-1].environment),
        _OF_ONE_LAUNCH,
    )
    if device is None:
        return Place({}, others, known=False)
    return Place(_different(class_facts(device.facts), class_facts(here)), others)


_OF_ONE_LAUNCH = ("cores", "conditions", "request_overhead_ms")
"""Texts of a launch's environment that say nothing of the machine; numbers are of one launch alone."""


def _texts(environment: Mapping[str, Fact]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if isinstance(value, str)}


def _different(there: Mapping[str, Any], here: Mapping[str, Any], without: Sequence[str] = ()) -> dict[str, Any]:
    return {
        name: (printable(str(value)), printable(str(here[name])))
        for name, value in there.items()
        if name in here and name not in without and here[name] != value
    }


def verdict(compared: Sequence[Compared], where: Place) -> str:
    """The answer in one sentence."""
    wrong = [each.name for each in compared if not each.agrees]
    what = "All figures agree" if not wrong else f"{' and '.join(wrong)} {'differs' if len(wrong) == 1 else 'differ'}"
    what = what[:1].upper() + what[1:]
    if not where.known:
        return f"{what}; the report does not say which device measured them."
    if where.differences:
        names = ", ".join(where.differences)
        end = ", though" if not wrong else ":"
        return f"{what}{end} this machine is of another class ({names})."
    return f"{what}, on a device of the same class."


def conditions(subject: Subject, measured: Measured) -> list[str]:
    """What to know of the conditions on both sides, a sentence each; mostly none."""
    said = []
    if subject.candidate.marked:
        said.append("the report's figures were measured under conditions out of the ordinary")
    if (here := measured.marked()) is not None:
        said.append(f"here: {here}")
    return said
