"""The study of proxies: rank statistics, LTS's published numbers from its own tables, frontiers, other domains."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scored_models import MODELS, SMALL

from edgefront.core.architectures.parameters import count
from edgefront.core.common.errors import InvalidInput
from edgefront.core.training.proxies.registry import ProxySettings, proxies
from edgefront.core.training.proxies.score import score
from edgefront.core.training.proxies.study import (
    ProxyStudy,
    best,
    common_ratio,
    d_avg,
    interval,
    kendall,
    ranks,
    slices_of,
    spearman,
    study_proxies,
)
from edgefront.core.training.proxies.table import (
    Quality,
    Row,
    architecture_of,
    best_of,
    number_in,
    quality_of,
    read_table,
    value_of,
    where,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "lts_trained_wt103.jsonl"
COUNTS = [proxies()["decoder_parameters"], proxies()["total_parameters"]]


@pytest.fixture(scope="module")
def trained() -> list[Row]:
    return read_table(GOLDEN)


def study_of(rows: list[Row], **options: Any) -> ProxyStudy:
    return study_proxies(
        rows, quality_of(rows), COUNTS, lambda model, proxy: score(model, proxy), ProxySettings(), **options
    )


@pytest.mark.parametrize(
    ("table", "decoder", "total"),
    [
        ("random_GPT2_wt103", {100: 0.967, 30: 0.816, 10: 0.574}, {100: 0.737}),
        ("random_TransXL_wt103", {100: 0.974, 30: 0.660, 10: 0.713}, {100: 0.261}),
    ],
)
def test_ltss_models_rank_as_published(
    trained: list[Row], table: str, decoder: dict[int, float], total: dict[int, float]
) -> None:
    found = study_of(where(trained, {"set": table}))
    assert found.models == 200
    assert not found.higher_is_better
    for expected, one in zip((decoder, total), found.proxies, strict=True):
        assert one.from_column
        assert one.flops == 0
        parts = {part.percent: part for part in one.slices}
        for percent, value in expected.items():
            assert parts[percent].spearman == pytest.approx(value, abs=6e-4)
            assert parts[percent].low < parts[percent].spearman < parts[percent].high
    assert [part.models for part in found.proxies[0].slices] == [200, 100, 60, 20]
    assert found.proxies[0].slices[0].common_ratio == 1.0


def test_ltss_rows_are_the_models_that_their_counts_say(trained: list[Row]) -> None:
    for row in trained:
        architecture = architecture_of(row)
        assert architecture is not None
        assert count(architecture).decoder == value_of(row, "decoder_parameters")
    as_wide_as_the_model = architecture_of({**trained[0], "d_embed": -1})  # as in LTS's logs of its frontiers
    assert as_wide_as_the_model is not None
    assert as_wide_as_the_model.embedding.d_embed in (None, trained[0]["d_model"])


def test_ranks_and_correlations_are_scipys_with_and_without_ties() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.integers(0, 12, 25), rng.normal(size=25).round(1)
        assert ranks(a) == pytest.approx(stats.rankdata(a))
        assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
        assert kendall(a, b) == pytest.approx(stats.kendalltau(a, b).statistic)


def test_too_few_or_constant_values_have_no_correlation() -> None:
    assert math.isnan(spearman([1, 2], [1, 2]))
    assert math.isnan(kendall([1, 2], [1, 2]))
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))
    assert math.isnan(kendall([1, 1, 1], [1, 2, 3]))
    assert interval([1, 2], [1, 2]) is None
    assert interval(range(9), range(9)) is None
    assert interval([1] * 20, range(20)) is None


def test_the_interval_is_that_of_bonett_and_wright() -> None:
    """z = atanh(ρ) with variance (1 + ρ²/2) / (n - 3), for ρ = -0.8."""
    order = [10, 9, 8, 7, 6, 5, 4, 1, 2, 3, 0]  # ρ = -1 + 6 · (2² + 2²) / (11 · 120) … of 11
    rho = spearman(range(11), order)
    half = stats.norm.ppf(0.975) * math.sqrt((1 + rho**2 / 2) / 8)
    assert interval(range(11), order) == pytest.approx(
        (math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half))
    )


def test_a_perfect_order_of_few_models_is_no_certainty() -> None:
    for sign in (1, -1):
        found = interval(range(10), [sign * one for one in range(10)])
        assert found is not None
        near, far = sorted(found, key=abs, reverse=True)
        assert near == sign
        assert 0.9 < sign * far < 0.95


def test_the_interval_holds_as_often_as_it_says() -> None:
    """Of normal pairs ρ_S = 6/π · asin(ρ/2)."""
    rng = np.random.default_rng(0)
    for models, rho in ((10, 0.5), (10, 0.9), (30, 0.9)):
        truth, held = 6 / math.pi * math.asin(rho / 2), 0
        for _ in range(400):
            first, other = rng.normal(size=(2, models))
            found = interval(first, rho * first + math.sqrt(1 - rho**2) * other)
            assert found is not None
            held += found[0] <= truth <= found[1]
        assert held / 400 >= 0.91


def test_a_model_that_was_trained_with_several_seeds_is_one_model(trained: list[Row]) -> None:
    part = where(trained, {"set": "random_GPT2_wt103"})[:12]
    seeds = [
        {**dict(reversed(row.items())), "seed": s, "valid_ppl": row["valid_ppl"] + s} for s in (1, -1) for row in part
    ]
    once, often = study_of(part), study_of([*part, *seeds, *part])
    assert (once.models, once.trainings, once.repeated) == (12, 12, 0)
    assert study_of([*part, *part]).proxies == once.proxies
    assert (often.models, often.trainings, often.repeated) == (12, 36, 12)
    assert often.proxies == once.proxies  # the mean of a model's trainings is that of the first here
    latencies = [{**row, "ms": row["n_layer"] + (0.5 if "seed" in row else 2)} for row in (*part, *seeds)]
    assert study_of(latencies, latency="ms").proxies[0].d_avg is not None
    with pytest.raises(InvalidInput, match=r"36 rows .* are of 2 different models"):
        study_of([{**row, "valid_ppl": 9.0 + place} for place, row in enumerate(part[:2] * 18)])


def test_numbers_that_no_float_holds_are_no_quality_and_no_score(trained: list[Row], tmp_path: Path) -> None:
    part = where(trained, {"set": "random_GPT2_wt103"})[:12]
    for name, kept in (("valid_ppl", 11), ("decoder_parameters", 12)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in [*part[:11], {**part[11], name: 10**400}]))
        assert study_of(read_table(path)).models == kept
    for layers in (1e9, 10**400):
        with pytest.raises(InvalidInput) as caught:
            architecture_of({**part[0], "n_layer": layers, "n_head": 2, "d_inner": 64})
        assert (caught.value.field, caught.value.allowed) == ("n_layer", "at most 1024")


def test_the_common_ratio_is_the_overlap_of_two_tops() -> None:
    truth, proxy = [10, 9, 8, 7, 6, 5, 4, 3, 2, 1], [1, 9, 8, 10, 6, 5, 4, 3, 2, 0]
    assert best(truth, 0.3).tolist() == [0, 1, 2]
    assert common_ratio(truth, proxy, 0.3) == pytest.approx(2 / 3)
    assert common_ratio(truth, proxy, 1.0) == 1.0
    assert len(best(np.arange(100), 0.29)) == 29
    assert [part.models for part in slices_of(truth, proxy)] == [10, 5, 3, 1]
    assert slices_of(truth, proxy)[-1].spearman is None


def test_d_avg_compares_each_point_with_the_nearest_in_latency() -> None:
    """The proxy's frontier is models 0, 1 and 3; the true one 0, 2 and 3, of which 2 is above the line from 0 to 3."""
    latency, quality = [1.0, 2.0, 2.1, 4.0], [100.0, 80.0, 60.0, 50.0]
    proxy = [1.0, 3.0, 2.0, 4.0]
    assert d_avg(quality, latency, proxy) == pytest.approx((20 / 60) / 3)
    # Models 1 and 2 on the frontier, but not on its hull: the line from 0 to 3 passes below them.
    quality[1:3] = 90.0, 88.0
    assert d_avg(quality, latency, proxy) == pytest.approx((10 / 100) / 3)
    assert d_avg([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [5.0, 6.0, 7.0], higher_is_better=True) == 0.0


def test_the_proxys_frontier_is_judged_by_the_latencies_of_a_column() -> None:
    rows = [
        {"valid_ppl": ppl, "decoder_parameters": size, "latency": ms, "total_parameters": size}
        for ppl, size, ms in ((100.0, 1, 1.0), (80.0, 3, 2.0), (60.0, 2, 2.1), (50.0, 4, 4.0))
    ]
    found = study_of(rows, latency="latency")
    assert found.proxies[0].d_avg == pytest.approx((20 / 60) / 3)
    with pytest.raises(InvalidInput, match="no row has a number in memory"):
        study_of(rows, latency="memory")


def test_a_table_of_encoders_is_scored_by_what_its_rows_say() -> None:
    """Appendix J: BERT models by test perplexity; the scores are computed, and what they cost is told."""
    rows: list[Row] = [
        {"backbone": "bert", "n_layer": 2, "d_model": 128, "d_inner": 256 + 64 * i, "n_head": 2, "test_ppl": 30.0 - i}
        for i in range(5)
    ]
    found = study_of(rows)
    assert found.quality == "test_ppl"
    assert not found.proxies[0].from_column
    assert found.proxies[0].slices[0].spearman == 1.0


def test_a_table_of_translations_keeps_the_best_learning_rate_of_each_model() -> None:
    """Appendix J: one BPE, of each architecture the best learning rate, BLEU higher is better."""
    rows = [
        {
            "pair": "ja-en",
            "bpe": bpe,
            "layers": layers,
            "lr": lr,
            "NonEmbParams": 1e6 * layers,
            "TotalParams": 2e6,
            "bleu": bleu,
        }
        for bpe in (10_000, 30_000)
        for layers in (1, 2, 4)
        for lr, bleu in ((0.001, 10.0 + layers), (0.1, 3.0 - layers if bpe == 10_000 else 30.0))
    ]
    quality = quality_of(rows)
    assert quality == Quality("bleu", True)
    kept = best_of(where(rows, {"bpe": "10000"}), ["pair", "layers"], quality)
    assert [row["lr"] for row in kept] == [0.001] * 3
    assert study_of(kept).proxies[0].slices[0].spearman == 1.0
    assert study_of(kept).proxies[1].slices[0].spearman is None  # all alike


def test_torch_proxies_are_computed_and_turned(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"architecture": {**MODELS["gpt"].canonical, "d_model": width}, "perplexity": 10.0 - width}
        for width in (4, 8, 16)
    ]
    chosen = [proxies()[name] for name in ("snip", "grasp", "decoder_parameters")]
    calls: list[str] = []

    def scored(model: Any, proxy: Any) -> float:
        calls.append(proxy.name)
        return score(model, proxy, 0, SMALL)

    found = study_proxies(rows, quality_of(rows), chosen, scored, SMALL)
    snip, grasp, counted = found.proxies
    assert calls == ["snip"] * 3 + ["grasp"] * 3 + ["decoder_parameters"] * 3
    assert snip.flops is not None
    assert 0 < snip.flops < grasp.flops
    assert counted.slices[0].spearman == 1.0
    raw = [-score(architecture_of(row), "grasp", 0, SMALL) for row in rows]
    assert grasp.slices[0].spearman == pytest.approx(stats.spearmanr(raw, [4, 8, 16]).statistic)


def test_models_that_a_proxy_cannot_score_are_left_out_of_it_alone() -> None:
    rows: list[Row] = [{"architecture": MODELS[name].canonical, "ppl": 1.0 + i} for i, name in enumerate(MODELS)]
    found = study_proxies(
        rows, quality_of(rows), [proxies()["relu_log_det"], COUNTS[0]], lambda m, p: score(m, p, 0, TINY), TINY
    )
    assert [proxy.models for proxy in found.proxies] == [len(MODELS) - 1, len(MODELS)]


TINY = ProxySettings(rows=2, length=3)


@pytest.mark.parametrize("end", ["\u0085", "\u2028", "\u2029"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_rows_of_a_table_end_at_line_feeds_alone(tmp_path: Path, name: str, end: str) -> None:
    rows = [{"note": f"one{end}two", "ppl": 9}, {"note": "x", "ppl": 8}]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    texts = {
        "a.jsonl": "\r\n".join(lines),
        "a.csv": "note,ppl\r\n" + "\r\n".join(f'"{row["note"]}",{row["ppl"]}' for row in rows),
    }
    (tmp_path / name).write_bytes(texts[name].encode("utf-8-sig"))
    assert read_table(tmp_path / name) == rows


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"ppl": 1}\n{"ppl": ', "line 2 is not JSON"),
        ("a.jsonl", "[1]\n", "line 1 is not a JSON object"),
        ("a.csv", "ppl,layers\n", "no rows"),
        ("a.csv", "ppl,layers\n9,1\n8,2,3\n", "row 2 has more cells than the header has columns"),
        ("a.jsonl", b"\xff\xfe\x00", "not UTF-8 text"),
        ("a.jsonl", "[" * 100_000, "line 1 is not JSON"),
        ("a.csv", "ppl,layers\n9," + "1" * 200_000, "not CSV: field larger"),
    ],
)
def test_invalid_tables_are_reported(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidInput, match=message):
        read_table(file)


def test_a_table_may_be_csv_or_json(tmp_path: Path) -> None:
    as_csv, as_json = tmp_path / "t.csv", tmp_path / "t.jsonl"
    as_csv.write_text('valid_ppl,n_layer,n_head,note\n12.5,2,"[2, 4]",\n,1,2,x\n', encoding="utf-8")
    as_json.write_text(json.dumps({"valid_ppl": 12.5, "params": {"total": 7}}), encoding="utf-8")
    assert read_table(as_csv) == [
        {"valid_ppl": 12.5, "n_layer": 2, "n_head": [2, 4], "note": None},
        {"valid_ppl": None, "n_layer": 1, "n_head": 2, "note": "x"},
    ]
    assert value_of(read_table(as_json)[0], "total_parameters") == 7
    assert number_in({"a": float("nan")}, "a") is None


def test_quality_must_be_known_or_given() -> None:
    rows: list[Row] = [{"x": 1.0}]
    with pytest.raises(InvalidInput, match="no column has the quality of a model; the table has x") as raised:
        quality_of(rows)
    assert raised.value.allowed.startswith("a column of one of these names: valid_ppl, perplexity, ")
    with pytest.raises(InvalidInput, match="no column 'y'; there are x"):
        quality_of(rows, "y")
    with pytest.raises(InvalidInput, match="it is unknown whether a higher x is better"):
        quality_of(rows, "x")
    assert quality_of(rows, "x", higher_is_better=True) == Quality("x", True)
    with pytest.raises(InvalidInput, match="1 rows with a number in x are of 1 different models"):
        study_proxies(rows, Quality("x", True), COUNTS, lambda *_: 0.0, SMALL)
    three: list[Row] = [{"x": 1.0}, {"x": 2.0}, {"x": 3.0}]
    with pytest.raises(InvalidInput, match=r"has a value for 0 of 3 models: rows have neither .* \(row 1: arch"):
        study_proxies(three, Quality("x", True), COUNTS, lambda *_: 0.0, SMALL)


def test_rows_that_tell_nothing_are_named(trained: list[Row]) -> None:
    """Missing or no numbers: each error says in which row and column."""
    some = trained[:4]

    def refused(rows: list[Row]) -> InvalidInput:
        with pytest.raises(InvalidInput) as caught:
            study_proxies(rows, Quality("valid_ppl", False), COUNTS, lambda *_: 0.0, SMALL)
        return caught.value

    same = refused([{**some[0], "valid_ppl": 30.0 + n} for n in range(4)])
    assert (same.field, same.value) == ("table", 1)
    assert "4 rows with a number in valid_ppl are of 1 different models" in same.detail
    short = refused([*some[:2], {**some[2], "valid_ppl": float("nan")}])
    assert short.field == "rows.3.valid_ppl"
    assert "row 3: valid_ppl is nan" in short.detail
    wrong = refused([*some[:3], {**some[3], "n_layer": "five"}])
    assert (wrong.field, wrong.detail[:5]) == ("rows.4.n_layer", "row 4")
    left = study_proxies(
        [some[0], {**some[1], "valid_ppl": None}, *some[2:]], Quality("valid_ppl", False), COUNTS, lambda *_: 0.0, SMALL
    )
    assert (left.left_out, left.first_left_out) == (1, 2)
