"""`edgefront proxy …`: proxies for quality, and their reliability. Needs no server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefront.cli.commands.options import ModelArgument
from edgefront.cli.commands.quality import conditions
from edgefront.cli.session import Session, command, group
from edgefront.client.extras import need
from edgefront.client.show.output import NONE
from edgefront.client.show.table import Table
from edgefront.core.common.errors import InvalidInput

if TYPE_CHECKING:
    from edgefront.core.architectures.architecture import Architecture
    from edgefront.core.training.proxies.own_data_study import OwnDataStudy
    from edgefront.core.training.proxies.registry import Proxy, ProxySettings
    from edgefront.core.training.proxies.study import ProxyStudy
    from edgefront.core.training.proxies.table import Row

QUALITY_LAW = "quality_law"

app = group("Proxies for quality: score a model, and study how well proxies rank trained models.")

Proxies = Annotated[
    list[str] | None, typer.Option("--proxy", "-p", help="Name of a proxy, from `proxy list`. May be repeated.")
]


@dataclass(frozen=True)
class ScoreOptions:
    """Settings for computing proxy scores."""

    seed: Annotated[int, typer.Option(min=0, help="Seed of the random weights and tokens.")] = 0
    rows: Annotated[int, typer.Option("--rows", min=1, help="Sequences of a batch.")] = 16
    length: Annotated[int, typer.Option("--length", min=2, help="Tokens of a sequence.")] = 192
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="NAME_OR_FOLDER", help="A prepared data set. Default: random tokens."),
    ] = None
    steps: Annotated[int, typer.Option(min=1, help="Steps of partial_training.")] = 500
    recipe: Annotated[str, typer.Option(help="Recipe of partial_training.")] = "quick"
    law: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_FILE",
            help="Law of quality_law. Default: the law of the models' family.",
        ),
    ] = None

    def settings(self, *, without_law: bool = False) -> ProxySettings:
        """Returns the proxies' settings. `without_law` omits the scaling law, because studies choose one themselves."""
        from edgefront.core.training.proxies.registry import ProxySettings

        fields = {name: value for name, value in asdict(self).items() if name != "seed"}
        return ProxySettings.parse(fields | ({"law": None} if without_law else {}))


@command(app, "list", server=False)
def list_proxies(session: Session) -> None:
    """List the proxies. A search ranks by those that need no torch."""
    from edgefront.core.training.proxies.registry import proxies

    listed = list(proxies().values())
    table = Table.of(
        listed,
        {
            "name": lambda proxy: proxy.name,
            "better": lambda proxy: "higher" if proxy.higher_is_better else "lower",
            "needs": lambda proxy: "torch" if proxy.needs_torch else "",
            "what it is": lambda proxy: proxy.title,
            "source": lambda proxy: proxy.source,
        },
        wrap=("what it is", "source"),
        drop_first=("source", "needs"),
    )
    session.put([described(proxy) for proxy in listed], table)


def described(proxy: Proxy) -> dict[str, Any]:
    """Returns the description of a proxy as a JSON object."""
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
    options: ScoreOptions = ScoreOptions(),
) -> None:
    """Score a model by one or several proxies (by default those that need no torch)."""
    from edgefront.core.training.evaluation.given_model import architecture_of
    from edgefront.core.training.proxies.score import covers, score

    architecture = architecture_of(model)
    settings, chosen = options.settings(), _proxies(proxy)
    if proxy is None:
        chosen = [entry for entry in chosen if entry.name != QUALITY_LAW or covers(architecture)]
    values = {
        entry.name: score(architecture, entry, options.seed, settings, data=_data_folder(options.data))
        for entry in chosen
    }
    costs = {entry.name: entry.cost(architecture, settings) for entry in chosen}

    table = Table("proxy", "score", "better", "FLOPs", right=("score", "FLOPs"))
    for entry in chosen:
        value = values[entry.name]
        text = f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"
        table.add_row(entry.name, text, "higher" if entry.higher_is_better else "lower", f"{costs[entry.name]:.2g}")
    result = [
        {"proxy": name, "score": value, "flops": costs[name], "seed": options.seed} for name, value in values.items()
    ]
    session.put({"digest": architecture.digest, "scores": result}, table)


@command(app, "study", server=False)
def study_table(
    session: Session,
    file: Annotated[
        Path, typer.Argument(metavar="TABLE", help="Trained models: JSON lines, JSON or CSV, one model a row.")
    ],
    proxy: Proxies = None,
    quality: Annotated[
        str | None,
        typer.Option(metavar="COLUMN[:higher|:lower]", help="Quality after training. Default: valid_ppl, bleu, …"),
    ] = None,
    latency: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Latencies: compare the frontiers too (d_avg).")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Use only rows with this value. May be repeated.")
    ] = None,
    best_per: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="Keep only the best of rows with equal values in these columns (best learning rate)."
        ),
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="COLUMN", help="One study for each value of a column.")] = None,
    options: ScoreOptions = ScoreOptions(),
) -> None:
    """Study how well proxies rank trained models.

    Prints Spearman's rho with its 95 % interval, Kendall's tau and the common ratio, over all models and the best 50,
    30 and 10 %. Scores come from a proxy's column or are computed from the models. A scaling law predicts without the
    table's models. The law for new data is evaluated as if the table were yours: the share of its 95 % intervals that
    hold, without and after 1 to 10 trainings.
    """
    from edgefront.core.quality.predictor import in_words
    from edgefront.core.quality.shipped import find_scaling_law
    from edgefront.core.training.proxies.own_data_study import UnseenModels
    from edgefront.core.training.proxies.score import score
    from edgefront.core.training.proxies.study import study_proxies
    from edgefront.core.training.proxies.table import best_of, has_scores, quality_of, read_table
    from edgefront.core.training.proxies.table import where as rows_where
    from edgefront.core.training.proxies.trained import after_equal_tokens

    settings, chosen = options.settings(without_law=True), _proxies(proxy)
    table_rows = rows_where(read_table(file), conditions(where or []))
    if proxy is None:  # the proxies in the table; if there are none, all, so that the error names them
        chosen = [entry for entry in chosen if has_scores(table_rows, entry.name)] or chosen
    column, higher = quality, None
    if quality is not None and (match := re.fullmatch(r"(.+):(higher|lower)", quality)):
        column, higher = match[1], match[2] == "higher"
    measure = quality_of(table_rows, column, higher)
    law = None if options.law is None else find_scaling_law(options.law, "law")
    if best_per:
        table_rows = best_of(table_rows, best_per, measure)
    cache: dict[str, dict[str, float]] = {}  # proxy → digest → score
    data_folder = _data_folder(settings.data)
    studies: dict[str, _TableStudy] = {}
    with session.err.status("scoring") as status:

        def cached_score(architecture: Architecture, entry: Proxy) -> float:
            by_digest = cache.setdefault(entry.name, {})
            if architecture.digest not in by_digest and entry.name == QUALITY_LAW and by_digest:
                raise InvalidInput("the scaling law is of another family of models", field="proxy", value=QUALITY_LAW)
            if architecture.digest not in by_digest:
                by_digest[architecture.digest] = score(architecture, entry, options.seed, settings, data=data_folder)
                status.update(f"{entry.name}: {len(by_digest)} scores")
            return by_digest[architecture.digest]

        for name, group_rows in _groups(table_rows, by).items():
            rows, tokens = after_equal_tokens(group_rows)
            unseen = UnseenModels.of(group_rows, measure, law)
            if law is not None and unseen is None:
                raise InvalidInput(
                    f"law: {measure.column} is no perplexity, loss or bpc of models that scaling laws cover",
                    field="law",
                    value=options.law,
                    allowed="a table of decoders with perplexities",
                )
            cache[QUALITY_LAW] = {} if unseen is None else unseen.scores(tokens)
            omitted = {QUALITY_LAW} if proxy is None and unseen is None else set()
            ranked = [entry for entry in chosen if entry.name not in omitted]
            study = study_proxies(rows, measure, ranked, cached_score, settings, latency=latency)
            own_data = None if unseen is None or law is not None else unseen.study()
            studies[name] = _TableStudy(study, own_data, tokens)

    def show() -> None:
        for name, each in studies.items():
            _show(session, each.proxies, name)
            for line in _own_data_lines(each.own_data):
                session.say(line)
            if each.tokens is not None:
                session.note(
                    f"models are ranked after {in_words(each.tokens)} tokens, the most frequent training budget"
                )

    results = {name: each.to_json() for name, each in studies.items()}
    session.put(results if by else {"table": str(file), **results[""]}, show)


@dataclass(frozen=True)
class _TableStudy:
    """The study of one table of trained models, or of the table's rows that have the same value in a column."""

    proxies: ProxyStudy
    own_data: OwnDataStudy | None
    tokens: float | None
    """Training tokens after which models are ranked; None if the table does not state them."""

    def to_json(self) -> dict[str, Any]:
        own_data: dict[str, Any] = {"held": None, "held_ratios": None, "half_width_ratios": None, "after": []}
        own_data["own_data"] = None
        if self.own_data is not None:
            own_data = asdict(self.own_data)
            own_data["own_data"] = {name: own_data.pop(name) for name in ("law", "models", "left_out")}
        return {**asdict(self.proxies), "tokens": self.tokens, **own_data}


def _show(session: Session, study: ProxyStudy, name: str) -> None:
    from edgefront.core.training.proxies.study import MIN_FOR_INTERVAL
    from edgefront.core.training.proxies.trained import repeats_in_words

    def rounded(value: float | None) -> str:
        return NONE if value is None else f"{value:.3f}"

    direction = "higher" if study.higher_is_better else "lower"
    title = f"{name + ': ' if name else ''}{study.models} models by {study.quality} ({direction} is better)"
    numbers = ("best", "models", "Spearman", "95 %", "Kendall", "common ratio", "FLOPs")
    table = Table("proxy", *numbers, title=title, right=numbers, drop_first=("FLOPs", "Kendall", "common ratio"))
    for ranking in study.proxies:
        for index, part in enumerate(ranking.slices):
            interval = NONE if part.low is None or part.high is None else f"{part.low:.2f} … {part.high:.2f}"
            table.add_row(
                ranking.proxy if index == 0 else "",
                "all" if part.percent == 100 else f"{part.percent} %",
                str(part.models),
                rounded(part.spearman),
                interval,
                rounded(part.kendall),
                rounded(part.common_ratio),
                (NONE if ranking.flops is None else f"{ranking.flops:.2g}") if index == 0 else "",
            )
    session.out.print(table)
    if any(part.spearman is not None and part.low is None for proxy in study.proxies for part in proxy.slices):
        session.note(f"an interval of Spearman's rho needs at least {MIN_FOR_INTERVAL} models")
    for ranking in study.proxies:
        if ranking.d_avg is not None:
            session.out.print(
                f"{ranking.proxy}: frontier {ranking.d_avg:.2%} from the true one in {study.quality} (d_avg)"
            )
    if repeats := repeats_in_words(study.repeated, study.trainings, study.models):
        means = ", and each model counts once, with the mean of its trainings" if study.trainings > study.models else ""
        session.note(f"{repeats}{means}")
    if study.left_out:
        rows, were = ("row", "was") if study.left_out == 1 else ("rows", "were")
        session.note(
            f"{study.left_out} {rows} without a number in {study.quality} {were} left out: the first is row "
            f"{study.first_left_out}"
        )


def _proxies(names: Sequence[str] | None) -> list[Proxy]:
    from edgefront.core.training.proxies.registry import proxies, proxy_named

    if not names:
        return [proxy for proxy in proxies().values() if not proxy.needs_torch]
    chosen = [proxy_named(name) for name in names]
    for proxy in chosen:
        if proxy.needs_torch:
            need(f"proxy {proxy.name}", "torch")
    return chosen


def _own_data_lines(study: OwnDataStudy | None) -> list[str]:
    """Returns lines on a scaling law's accuracy for the user's own data, one per number of already trained models."""
    if study is None:
        return []
    left_out = f", fitted without {study.left_out} rows that are in this table" if study.left_out else ""
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


def _data_folder(data: str | None) -> Path | None:
    """Returns the folder of a prepared data set. `data` is the folder or a name that `data list` shows."""
    from edgefront.core.data.prepared.prepared import find_prepared
    from edgefront.core.services.settings import Settings

    return None if data is None else find_prepared(Settings().data_folder, data).folder


def _groups(rows: Sequence[Row], by: str | None) -> dict[str, list[Row]]:
    """Groups rows by the value of a column; without a column, all rows form one group with an empty name."""
    groups: dict[str, list[Row]] = {"": []} if by is None else {}
    for row in rows:
        groups.setdefault("" if by is None else str(row.get(by)), []).append(row)
    return dict(sorted(groups.items()))
