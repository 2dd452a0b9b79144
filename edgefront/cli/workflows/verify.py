"""Compares a new measurement of a report's recommended model with the reported figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, log1p
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput, NotFound, TooLarge
from edgefront.core.common.units import MB, plain
from edgefront.core.common.validation import checked, existing, invalid_input, printable
from edgefront.core.measurement.figures import aggregate_figures, launches_of
from edgefront.core.measurement.record import Milliseconds
from edgefront.core.measurement.statistics import LaunchVariance, standing
from edgefront.core.schemas.candidates import CandidateView
from edgefront.core.schemas.jobs import Limits, TargetView
from edgefront.core.schemas.messages import View
from edgefront.core.schemas.reports import MAX_REPORT_BYTES, Report
from edgefront.core.search.pareto.options import MEMORY_SPREAD, UNITS, Estimate, LimitName, OptionLimits, Ratio

if TYPE_CHECKING:
    from edgefront.cli.workflows.measure import Measured
    from edgefront.core.measurement.record import Fact
    from edgefront.core.schemas.agent import DeviceFacts


def read_report(path: Path) -> Report:
    """Reads a report from `report.json` or its folder. Raises `NotFound`, `TooLarge` or `InvalidInput`."""
    if path.is_dir():
        path /= "report.json"
    try:
        with path.open("rb") as file:
            content = file.read(MAX_REPORT_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no {path}: `edgefront report write JOB` writes such a file") from None
    if len(content) > MAX_REPORT_BYTES:
        raise TooLarge(f"{path} is not a report: it has more than {MAX_REPORT_BYTES >> 20} MiB")
    try:
        return Report.model_validate_json(content)
    except ValidationError as error:
        cause = invalid_input(error, InvalidInput)
    raise InvalidInput(
        f"{path} is not a report that this release reads: {printable(cause.detail)}",
        field=cause.field,
        allowed="report.json as `edgefront report write` wrote it",
    )


HalfWidth = Annotated[float, Field(ge=0, le=4 * 3.6e6, allow_inf_nan=False)]


class ReportedFigures(View):
    """The reported latency, memory and other figures of the recommended model, checked for possible values."""

    latency_ms: Milliseconds
    latency_half_width_ms: HalfWidth
    first_token_ms: Milliseconds | None
    first_token_half_width_ms: HalfWidth | None
    token_ms: Milliseconds | None
    token_half_width_ms: HalfWidth | None
    memory_bytes: Annotated[int, Field(ge=1, le=1 << 50)]
    launches: Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True)
class Subject:
    """The model to measure again, and its reported figures."""

    target: TargetView
    candidate: CandidateView
    architecture: Architecture
    figures: ReportedFigures
    limits: Limits
    """The limits of the report's answer."""


def subject_of(report: Report, target: str | None) -> Subject:
    """Returns the recommended model of `target` (id or name; None selects the first target with a recommendation).
    Raises `NotFound` without a recommendation, `InvalidInput` for impossible figures or a changed model description.
    """
    matching = [each for each in report.recommended if target in (None, each[0].id, each[0].name)]
    if not matching:
        names = [printable(each.name) for each, _ in report.recommended]
        if target is None or not names:
            raise NotFound("nothing is recommended in this report, so there is nothing to measure again")
        raise NotFound(
            f"the report has no target {target!r} with a recommended model; {existing(target, names)}", field="target"
        )
    target_view, candidate = matching[0]
    architecture = Architecture.parse(candidate.architecture)
    if architecture.digest != candidate.digest:
        raise InvalidInput(
            f"the report was changed: description and figures of {candidate.id} have different digests",
            field="digest",
            value=candidate.digest,
            allowed=architecture.digest,
        )
    figures = checked(ReportedFigures, candidate.model_dump(include=set(ReportedFigures.model_fields)))
    answers = [(view.limits, view.recommended) for view in (each.recommendation for each in report.targets)]
    for view in () if report.choices is None else report.choices.every:
        answers.append((view.limits, None if view.recommended is None else view.recommended.candidate))
    limits = next(limits for limits, recommended in answers if recommended == candidate)
    return Subject(target_view, candidate, architecture, figures, limits)


@dataclass(frozen=True)
class FigureComparison:
    """A figure of the report (latency, memory …), and the same figure measured on this machine."""

    name: str
    limit: LimitName
    """The limit that bounds the figure, whose unit it has."""
    reported: Estimate
    here: Estimate
    ratio: Ratio
    """Ratio of this machine's figure to the reported figure, with its 95 % interval."""
    agrees: bool

    @property
    def verdict(self) -> str:
        """`agrees`, `differs`, or that the intervals are too wide to tell."""
        if not self.agrees:
            return "differs"
        return "cannot tell" if self.ratio.unsure(self.name) else "agrees"

    def to_json(self) -> dict[str, Any]:
        """Returns the figure's entry in the JSON of `edgefront report verify --json`, in milliseconds or bytes."""
        factor = MB if self.limit == "memory_mb" else 1
        return {
            "figure": self.name,
            "reported": factor * self.reported.value,
            "here": factor * self.here.value,
            "ratio": self.ratio.value,
            "ratio_low": self.ratio.low,
            "ratio_high": self.ratio.high,
            "agrees": self.agrees,
        }


def compare(figures: ReportedFigures, measured: Measured, epsilon: float) -> list[FigureComparison]:
    """Compares each reported figure with the launches on this machine (two or more). Two figures agree unless their
    intervals show a difference above `epsilon`, the relative difference that the job ignores.
    """
    times = aggregate_figures(measured.launches, measured.protocol.batch)
    spread = launches_of(measured.launches).half_width(LaunchVariance())
    comparisons = []
    names: dict[LimitName, str] = {
        "latency_ms": "latency",
        "first_token_ms": "first token",
        "token_ms": "further token",
    }
    for limit, name in names.items():
        reported_ms, here_ms = getattr(figures, limit), times[limit]
        if reported_ms is None or here_ms is None:
            continue
        reported = Estimate.plus_minus(reported_ms, getattr(figures, limit.replace("_ms", "_half_width_ms")))
        comparisons.append(_compare_figure(name, limit, reported, Estimate(here_ms, spread), epsilon))
    memory = Estimate(figures.memory_bytes / MB, MEMORY_SPREAD)
    peak = Estimate(measured.memory().peak_bytes / MB, MEMORY_SPREAD)
    return [*comparisons, _compare_figure("peak memory", "memory_mb", memory, peak, epsilon)]


def _compare_figure(
    name: str, limit: LimitName, reported: Estimate, here: Estimate, epsilon: float
) -> FigureComparison:
    ratio = here.over(reported)
    min_difference = abs(log(ratio.value)) - (ratio.spread or 0.0)
    return FigureComparison(name, limit, reported, here, ratio, agrees=min_difference <= log1p(epsilon))


def standings_in_words(figures: Sequence[FigureComparison], limits: Limits) -> str:
    """Describes how this machine's figures stand to the report's limits: `now beyond your 40 ms a further token`."""
    words = []
    for name, limit in OptionLimits(**limits.model_dump()).given.items():
        for each in figures:
            if each.limit == name:
                stands = standing(each.here.value, each.here.spread or 0.0, limit)
                place = "at your limit of" if stands == "at the limit" else f"{stands} your"
                words.append(f"now {place} {plain(limit)} {UNITS[name]}")
    return "; ".join(words)


def in_words(figure: FigureComparison) -> str:
    """Describes a comparison: `latency: 21.4 ± 0.3 ms reported, 21.9 ± 0.4 ms here; no measurable difference in latency
    (± 2.3 %): agrees`.
    """
    unit, more, less = ("MB", "more", "less") if figure.limit == "memory_mb" else ("ms", "longer", "shorter")
    return (
        f"{figure.name}: {figure.reported} {unit} reported, {figure.here} {unit} here; "
        f"{figure.ratio.in_percent(figure.name, more, less)}: {figure.verdict}"
    )


@dataclass(frozen=True)
class MachineDifferences:
    """Differences between the report's device and this machine: name → (value in the report, value here)."""

    class_facts: Mapping[str, tuple[str, str]]
    """Facts that define the device class; empty if both are of the same class."""
    others: Mapping[str, tuple[str, str]]
    """Other possible causes of a difference, such as versions."""
    known: bool = True
    """Whether the report contains the device."""


def compare_machines(report: Report, subject: Subject, here: DeviceFacts, measured: Measured) -> MachineDifferences:
    """Compares this machine with the device of the latest launch (run) of the subject's model in the report."""
    from edgefront.agents.device.probe import class_facts

    launches = [launch for launch in report.launches.get(subject.candidate.id, ()) if launch.result is not None]
    devices = {device.id: device for device in report.devices}
    device = next((devices[launch.device_id] for launch in reversed(launches) if launch.device_id in devices), None)
    reported = launches[-1].result.environment if launches and launches[-1].result else {}
    others = _differences(_comparable(reported), _comparable(measured.launches[-1].environment))
    if device is None:
        return MachineDifferences({}, others, known=False)
    return MachineDifferences(_differences(class_facts(device.facts), class_facts(here)), others)


_PER_LAUNCH = ("cores", "conditions", "request_overhead_ms")
"""Environment entries that differ between launches on one machine and are therefore ignored, like all numbers."""


def _comparable(environment: Mapping[str, Fact]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if isinstance(value, str) and name not in _PER_LAUNCH}


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    return {
        name: (printable(str(value)), printable(str(here[name])))
        for name, value in there.items()
        if name in here and here[name] != value
    }


def verdict(figures: Sequence[FigureComparison], machines: MachineDifferences, standings: str) -> str:
    """Returns one sentence: whether all figures agree, whether this machine is of the report's device class, and how
    the figures stand to the limits (`standings_in_words`).
    """
    end = f"; {standings}." if standings else "."
    differing = [figure.name for figure in figures if not figure.agrees]
    all_agree = all(figure.verdict == "agrees" for figure in figures)
    result = "All figures agree" if all_agree else "No figure is known to differ"
    if differing:
        result = f"{' and '.join(differing)} {'differs' if len(differing) == 1 else 'differ'}"
        result = result[:1].upper() + result[1:]
    if not machines.known:
        return f"{result}; the report does not say which device measured them{end}"
    if machines.class_facts:
        separator = ":" if differing else ", though"
        return f"{result}{separator} this machine is of another class ({', '.join(machines.class_facts)}){end}"
    return f"{result}, on a device of the same class{end}"


def bad_conditions(subject: Subject, measured: Measured) -> list[str]:
    """Returns sentences about bad measuring conditions in the report and on this machine."""
    sentences = []
    if subject.candidate.marked:
        sentences.append("the report's figures were measured under conditions out of the ordinary")
    if (here := measured.bad_conditions()) is not None:
        sentences.append(f"here: {here}")
    return sentences
