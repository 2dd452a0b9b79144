"""`edgefront proxy …`: what stands for quality, and how far it can be trusted. Needs no server."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefront.cli.commands.base import Session, command, group
from edgefront.cli.commands.options import ModelArgument
from edgefront.cli.commands.quality import conditions
from edgefront.cli.extras import need
from edgefront.cli.show.output import NONE
from edgefront.cli.show.table import Table

if TYPE_CHECKING:
    from edgefront.core.architectures.architecture import Architecture
    from edgefront.core.training.proxies.law_study import LawEvaluation
    from edgefront.core.training.proxies.own_data_study import OwnDataStudy
    from edgefront.core.training.proxies.registry import Proxy, ProxySettings
    from edgefront.core.training.proxies.study import ProxyStudy
    from edgefront.core.training.proxies.table import Row

QUALITY_LAW = "quality_law"

app = group("Proxies: scores that stand for quality; score a model, and study how well they rank trained ones.")

Proxies = Annotated[
    list[str] | None, typer.Option("--proxy", "-p", help="Name of a proxy, as `proxy list` shows it; several times.")
]


@dataclass(frozen=True)
class ScoreOptions:
    """How models are scored."""

    seed: Annotated[int, typer.Option(min=0, help="Of the random weights and tokens.")] = 0
    rows: Annotated[int, typer.Option("--rows", min=1, help="Sequences of the batch that a model is scored on.")] = 16
    length: Annotated[int, typer.Option("--length", min=2, help="Tokens of a sequence.")] = 192
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="NAME_OR_FOLDER", help="A prepared data set; without one tokens are random."),
    ] = None
    steps: Annotated[int, typer.Option(min=1, help="Of partial_training.")] = 500
    recipe: Annotated[str, typer.Option(help="Of partial_training.")] = "quick"
    law: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_FILE",
            help="Of quality_law. Default: that of the model's family which knows most of the models.",
        ),
    ] = None

    def settings(self, *, without_law: bool = False) -> ProxySettings:
        """Builds the settings of proxies from the options; a study looks for its law itself."""
        from edgefront.core.training.proxies.registry import ProxySettings

        given = {name: value for name, value in asdict(self).items() if name != "seed"}
        return ProxySettings.parse(given | ({"law": None} if without_law else {}))


@command(app, "list", server=False)
def list_proxies(session: Session) -> None:
    """List the proxies that a job may choose."""
    from edgefront.core.training.proxies.registry import proxies

    listed = list(proxies().values())

    def show() -> None:
        table = Table(
            "name",
            "better",
            "needs",
            "what it is",
            "source",
            wrap=("what it is", "source"),
            drop_first=("source", "needs"),
        )
        for proxy in listed:
            better = "higher" if proxy.higher_is_better else "lower"
            table.add_row(proxy.name, better, "torch" if proxy.needs_torch else "", proxy.title, proxy.source)
        session.out.print(table)

    session.put([described(proxy) for proxy in listed], show)


def described(proxy: Proxy) -> dict[str, Any]:
    """A proxy as JSON."""
    return {
        "name": proxy.name,
        "title": proxy.title,
        "source": proxy.source,
        "needs_torch": proxy.needs_torch,
        "higher_is_better": proxy.higher_is_better,
        "settings": list(proxy.uses),
    }


@command(app, "score", server=False)
def score_model(
    session: Session,
    model: ModelArgument,
    proxy: Proxies = None,
    how: ScoreOptions = ScoreOptions(),
) -> None:
    """Score a model by one or several proxies (by default those that need no torch)."""
    from edgefront.core.training.evaluation.given_model import architecture_of
    from edgefront.core.training.proxies.score import covers, score

    architecture = architecture_of(model)
    settings, chosen = how.settings(), _chosen(proxy)
    if proxy is None:
        chosen = [entry for entry in chosen if entry.name != QUALITY_LAW or covers(architecture)]
    values = {entry.name: score(architecture, entry, how.seed, settings, data=_folder(how.data)) for entry in chosen}
    costs = {entry.name: entry.cost(architecture, settings) for entry in chosen}

    def show() -> None:
        table = Table("proxy", "score", "better", "FLOPs", right=("score", "FLOPs"))
        for entry in chosen:
            value = values[entry.name]
            text = f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"
            table.add_row(entry.name, text, "higher" if entry.higher_is_better else "lower", _flops(costs[entry.name]))
        session.out.print(table)

    result = [{"proxy": name, "score": value, "flops": costs[name], "seed": how.seed} for name, value in values.items()]
    session.put({"digest": architecture.digest, "scores": result}, show)


@command(app, "study", server=False)
def study_table(
    session: Session,
    file: Annotated[
        Path, typer.Argument(metavar="TABLE", help="Trained models: JSON lines, JSON or CSV, one model a row.")
    ],
    proxy: Proxies = None,
    quality: Annotated[
        str | None,
        typer.Option(metavar="COLUMN[:higher|:lower]", help="How good a model came out. Default: valid_ppl, bleu, …"),
    ] = None,
    latency: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Latencies: compare the frontiers too (d_avg).")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Only rows with this value; several times.")
    ] = None,
    best_per: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Of rows that agree in these columns only the best (of learning rates)."),
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="COLUMN", help="One study for each value of a column.")] = None,
    how: ScoreOptions = ScoreOptions(),
) -> None:
    """Study how well proxies rank models that were trained.

    Spearman's rho with its 95 % interval, Kendall's tau and the common ratio, over all models and the best 50, 30 and
    10 %. A proxy's values are those of its column, or computed from what the rows say of the models. A quality law
    predicts the models of its own table without them (leave-one-out). Besides, the law about data that no table has is
    asked about the table as if it were yours: how many of its 95 % intervals hold, alone and after 1 to 10 trainings.
    """
    from edgefront.core.quality.predictor import in_words
    from edgefront.core.quality.shipped import find_law
    from edgefront.core.training.proxies.law_study import evaluate_laws
    from edgefront.core.training.proxies.own_data_study import own_data_study
    from edgefront.core.training.proxies.study import study_proxies
    from edgefront.core.training.proxies.table import best_of, has_scores, quality_of, read_table
    from edgefront.core.training.proxies.table import where as rows_where
    from edgefront.core.training.proxies.trained import after_equal_tokens

    settings, chosen = how.settings(without_law=True), _chosen(proxy)
    table_rows = rows_where(read_table(file), conditions(where or []))
    if proxy is None:  # those that the table has, or all where it has none, for the error
        chosen = [entry for entry in chosen if has_scores(table_rows, entry.name)] or chosen
    column, higher = quality, None
    if quality is not None and (named := re.fullmatch(r"(.+):(higher|lower)", quality)):
        column, higher = named[1], named[2] == "higher"
    measure = quality_of(table_rows, column, higher)
    if best_per:
        table_rows = best_of(table_rows, best_per, measure)
    scores: dict[str, dict[str, float]] = {}
    studies: dict[str, ProxyStudy] = {}
    laws: dict[str, tuple[LawEvaluation, ...]] = {}
    own_data: dict[str, OwnDataStudy | None] = {}
    budgets: dict[str, float | None] = {}
    with session.err.status("scoring") as status:
        score = _scorer(how.seed, settings, scores, status.update)
        for name, part in _parts(table_rows, by).items():
            asked = chosen
            own_data[name] = own_data_study(part, measure)
            part, budgets[name] = after_equal_tokens(part)
            if any(entry.name == QUALITY_LAW for entry in chosen):
                values, laws[name] = evaluate_laws(
                    part, measure, None if how.law is None else find_law(how.law), budgets[name]
                )
                scores[QUALITY_LAW] = scores.get(QUALITY_LAW, {}) | values
                if proxy is None and not values:
                    asked = [entry for entry in chosen if entry.name != QUALITY_LAW]
            studies[name] = study_proxies(part, measure, asked, score, settings, latency=latency)

    def show() -> None:
        for name, result in studies.items():
            _show(session, result, name)
            for judged in laws.get(name, ()):
                session.say(_judged(judged))
            for line in _of_own_data(own_data[name]):
                session.say(line)
            if (tokens := budgets[name]) is not None:
                session.note(f"models are ranked after {in_words(tokens)} tokens, which most of them share")

    results = {
        name: {
            **asdict(result),
            "tokens": budgets[name],
            "laws": [asdict(judged) for judged in laws.get(name, ())],
            **_own_data_json(own_data[name]),
        }
        for name, result in studies.items()
    }
    session.put(results if by else {"table": str(file), **results[""]}, show)


def _show(session: Session, study: ProxyStudy, name: str) -> None:
    from edgefront.core.training.proxies.study import MIN_FOR_INTERVAL
    from edgefront.core.training.proxies.trained import repeats_in_words

    direction = "higher" if study.higher_is_better else "lower"
    title = f"{name + ': ' if name else ''}{study.models} models by {study.quality} ({direction} is better)"
    numbers = ("best", "models", "Spearman", "95 %", "Kendall", "common ratio", "FLOPs")
    table = Table("proxy", *numbers, title=title, right=numbers, drop_first=("FLOPs", "Kendall", "common ratio"))
    for ranking in study.proxies:
        for index, part in enumerate(ranking.slices):
            low_high = NONE if part.low is None or part.high is None else f"{part.low:.2f} … {part.high:.2f}"
            table.add_row(
                ranking.proxy if index == 0 else "",
                "all" if part.percent == 100 else f"{part.percent} %",
                str(part.models),
                _three(part.spearman),
                low_high,
                _three(part.kendall),
                _three(part.common_ratio),
                (NONE if ranking.flops is None else _flops(ranking.flops)) if index == 0 else "",
            )
    session.out.print(table)
    if any(part.spearman is not None and part.low is None for proxy in study.proxies for part in proxy.slices):
        session.note(f"of fewer than {MIN_FOR_INTERVAL} models Spearman's rho has no interval")
    for ranking in study.proxies:
        if ranking.d_avg is not None:
            session.out.print(
                f"{ranking.proxy}: frontier {ranking.d_avg:.2%} from the true one in {study.quality} (d_avg)"
            )
    if said := repeats_in_words(study.repeated, study.trainings, study.models):
        means = ", each of which counts once, with the mean of its trainings" if study.trainings > study.models else ""
        session.note(f"{said}{means}")
    if study.left_out:
        rows, were = ("row", "was") if study.left_out == 1 else ("rows", "were")
        session.note(
            f"{study.left_out} {rows} without a number in {study.quality} {were} left out: the first is row "
            f"{study.first_left_out}"
        )


def _chosen(names: Sequence[str] | None) -> list[Proxy]:
    from edgefront.core.training.proxies.registry import proxies, proxy_named

    chosen = [
        proxy_named(name) for name in names or [proxy.name for proxy in proxies().values() if not proxy.needs_torch]
    ]
    if any(proxy.needs_torch for proxy in chosen):
        need(f"proxy {next(proxy.name for proxy in chosen if proxy.needs_torch)}", "torch")
    return chosen


def _judged(judged: LawEvaluation) -> str:
    text = f"quality_law {judged.law} (perplexity on {judged.data}): {judged.models} models"
    if judged.learnt_from:
        text += f", {judged.learnt_from} of its own table, each predicted without it"
    if judged.extrapolated:
        text += f", {judged.extrapolated} beyond its ranges"
    if judged.held is not None and judged.held_after_shift is not None:
        text += (
            f"; {judged.held:.0%} of the 95 % intervals hold, {judged.held_after_shift:.0%} after the median ratio of "
            f"trained to predicted perplexity, {judged.ratio:.3f}, is taken out"
        )
    return text


def _own_data_json(study: OwnDataStudy | None) -> dict[str, Any]:
    """How the law about own data did: `held`, `held_ratios` and `after`, which are empty where there is none."""
    if study is None:
        return {"held": None, "held_ratios": None, "half_width_ratios": None, "after": [], "own_data": None}
    value = asdict(study)
    about = {name: value.pop(name) for name in ("law", "models", "left_out")}
    return {**value, "own_data": about}


def _of_own_data(study: OwnDataStudy | None) -> list[str]:
    """Sentences for people, one for each number of known models."""
    if study is None:
        return []
    left_out = f", learnt anew without {study.left_out} rows that are in this table" if study.left_out else ""
    lines = [f"{study.law}{left_out}, as if these {study.models} models were your own data:"]

    def ratios(held: float | None, half_width: float | None) -> str:
        if held is None or half_width is None:
            return "no two models after equal tokens"
        return f"{held:.0%} of the ratios of two (× {exp(half_width):.3f})"

    shares = f"{study.held:.0%} of the 95 % intervals of one model hold after one shift of all"
    lines.append(f"  no trainings: {shares}, {ratios(study.held_ratios, study.half_width_ratios)}")
    for after in study.after:
        trained = "1 model" if after.trainings == 1 else f"{after.trainings} models"
        held = f"{after.held:.0%} of one model hold (× {exp(after.half_width):.3f})"
        lines.append(f"  {trained} known: {held}, {ratios(after.held_ratios, after.half_width_ratios)}")
    return lines


def _folder(data: str | None) -> Path | None:
    """Folder of a prepared data set, given as a folder or by its name in `data list`."""
    from edgefront.core.data.prepared.prepared import find_prepared
    from edgefront.core.services.settings import Settings

    return None if data is None else find_prepared(Settings().data_folder, data).folder


def _scorer(
    seed: int, settings: ProxySettings, scores: dict[str, dict[str, float]], scored: Callable[[str], None]
) -> Callable[[Architecture, Proxy], float]:
    """Scores, each once, kept in `scores` by proxy and digest."""
    from edgefront.core.training.proxies.score import score

    def score_once(architecture: Architecture, proxy: Proxy) -> float:
        by_digest = scores.setdefault(proxy.name, {})
        if architecture.digest not in by_digest:
            by_digest[architecture.digest] = score(architecture, proxy, seed, settings, data=_folder(settings.data))
            scored(f"{proxy.name}: {len(by_digest)} scores")
        return by_digest[architecture.digest]

    return score_once


def _parts(rows: Sequence[Row], by: str | None) -> dict[str, list[Row]]:
    """The rows, or by the values of a column; under an empty name if there is none."""
    if by is None:
        return {"": list(rows)}
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(str(row.get(by)), []).append(row)
    return dict(sorted(parts.items()))


def _three(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _flops(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}"
