"""`edgefront find` and `job recommend`: limits in, answer out."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console
from running_client import BOARD, Running

from edgefront.api.docs.examples import example
from edgefront.cli import exits
from edgefront.client.requests import PRESETS, apply_preset, find_request
from edgefront.client.show.recommendation import show
from edgefront.core.architectures.catalogue import space
from edgefront.core.architectures.formatting import architecture_in_words
from edgefront.core.common.errors import InvalidInput
from edgefront.core.schemas.predictions import PredictedView
from edgefront.core.schemas.recommendations import RecommendationView
from edgefront.core.search.evolution import LtsSettings

SMALL = ("--narrow", "n_layer=2..3 d_model=128,192 d_inner=256..640:64")
FEW_MB = ("--max-memory-mb", "15.5", "--candidates", "4")
"""The weights of the smallest model fit, but not what a pass needs beside them."""
BUDGET = {"candidates": 5}


def request(limits: dict[str, float | None], **changes: Any) -> Any:
    given: dict[str, Any] = {"space": "lts-gpt2", "narrow": {}, "budget": BUDGET}
    return find_request([{"device": "here", "protocol": {}, "limits": limits}], **given | changes)


def test_a_limit_on_a_token_measures_generations() -> None:
    assert request({"token_ms": 30.0}).targets[0].protocol.mode == "generate"
    assert request({"latency_ms": 30.0}).targets[0].protocol.mode == "forward"


def test_limits_in_answer_out(running: Running) -> None:
    done = running.command(
        "find --candidates 12 --max-latency-ms 50 --max-memory-mb 60 --json",
        "--device",
        f"{running.board}:onnxruntime:1",
        *SMALL,
        code=exits.OK,
    )
    answer = json.loads(done.stdout)
    job = running.client.jobs.get(answer["job"])
    assert job.request.goal == "best_within_limits"
    asked = job.request.targets[0]
    assert (asked.device, asked.protocol.runtime, asked.protocol.threads) == (running.board, "onnxruntime", 1)
    assert (job.request.proxy, job.request.algorithm.name) == ("quality_law", "surrogate")
    assert job.request.space.narrow["div"] == [1, 2, 4]
    assert job.request.space.narrow["d_embed"] == ["d_model", 128, 256, 512]
    (target,) = answer["targets"]
    view = target["recommendation"]
    best = view["recommended"]
    assert best["latency_ms"] <= 50
    assert best["memory_bytes"] <= 60 * 10**6
    assert best["predicted"]["perplexity_low"] < best["predicted"]["perplexity"] < best["predicted"]["perplexity_high"]
    assert best["id"] in target["commands"]["download"]
    assert best["id"] in target["commands"]["train"]

    glance = running.command("job recommend", answer["job"]).stdout
    assert f"next: {target['commands']['train']}" in glance
    assert view["sentence"] in " ".join(glance.split())
    assert best["id"] not in glance.replace(target["commands"]["train"], "")
    shown = running.command("job recommend --explain", answer["job"], code=exits.OK)
    for words in (view["sentence"], "baseline", "runner-up", "your own data", target["commands"]["download"]):
        assert words in shown.stdout

    impossible = running.command("job recommend --max-latency-ms 0.0001", answer["job"], code=exits.NOTHING_FITS)
    assert "Nothing that was measured is within 0.0001 ms and 60 MB" in impossible.stdout
    assert "raise the latency limit" in impossible.stdout
    as_json = running.command("job recommend --max-latency-ms 0.0001 --json", answer["job"], code=exits.NOTHING_FITS)
    assert [move["limit"] for move in json.loads(as_json.stdout)[0]["moves"]] == ["latency_ms"]
    seconds = running.command("find --max-latency-ms 0.01", "--device", f"class={BOARD}", *SMALL, code=exits.REFUSED)
    assert "if it was meant in seconds, it is 10 ms" in seconds.stderr
    negative = running.command("job recommend --max-memory-mb -1", answer["job"], code=exits.REFUSED)
    assert "max_memory_mb" in negative.stderr
    narrow = running.command(
        "find --max-latency-ms 50", "--device", f"class={BOARD}", *SMALL, *FEW_MB, code=exits.NOTHING_FITS
    )
    assert "raise the memory limit to" in narrow.stdout
    assert "models measured" in narrow.stderr
    assert "hypervolume" not in narrow.stderr
    other = running.client.jobs.recommendation(answer["job"], max_memory_mb=30)
    assert (other.limits.latency_ms, other.limits.memory_mb) == (50, 30)


@pytest.mark.parametrize("extrapolated", [True, False])
def test_the_mark_of_extrapolated_perplexities_is_explained(extrapolated: bool) -> None:
    view = RecommendationView.model_validate(example("recommendation"))
    recommended = view.recommended
    assert recommended is not None
    predicted = PredictedView(perplexity=30.0, perplexity_low=29.0, perplexity_high=31.0, extrapolated=extrapolated)
    best = recommended.model_copy(update={"predicted": predicted})
    view = view.model_copy(update={"recommended": best, "baseline": None, "runners_up": (), "trained": ()})
    console = Console(file=io.StringIO(), width=200)
    show(view, console, explain=True)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "parameters" in text
    assert ("30.0 ± 1.0*" in text) == ("* extrapolated: the model lies beyond" in text) == extrapolated


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give --max-latency-ms, --max-memory-mb or both"),
        (("--max-latency-ms", "-5"), "--max-latency-ms -5 is not a limit: give milliseconds above 0"),
        (("--max-memory-mb", "0"), "--max-memory-mb 0 is not a limit: give MB above 0"),
        (("--max-latency-ms", "nan"), "--max-latency-ms nan is not a limit"),
        (("--max-memory-mb", "inf"), "--max-memory-mb inf is not a limit"),
        (("--max-latency-ms", "5", "--device", "a:pytorch", "--runtime", "pytorch"), "both set the runtime"),
        (("--max-latency-ms", "5", "--device", "a:pytorch:2", "--threads", "1"), "both set the threads"),
        (("--max-latency-ms", "5", "--space", "lts-gpt9"), "lts-gpt2"),
        (("--max-latency-ms", "5", "--runtime", "tvm"), "targets.0.protocol.runtime"),
        (("--max-latency-ms", "5", "--narrow", "n_layer=99"), "n_layer cannot be 99"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_submitted(
    running: Running, options: tuple[str, ...], words: str
) -> None:
    before = [job.id for job in running.client.jobs.list()]
    done = running.command("find", *options, code=exits.REFUSED)
    assert words in done.stderr
    assert [job.id for job in running.client.jobs.list()] == before


def test_the_embedding_is_free_unless_it_is_narrowed() -> None:
    assert request({"latency_ms": 5.0}).space.narrow == {"div": [1, 2, 4], "d_embed": ["d_model", 128, 256, 512]}
    assert request({"latency_ms": 5.0}, narrow={"div": [4]}).space.narrow["div"] == [4]
    assert request({"latency_ms": 5.0}, space="bert").space.narrow == {}


def test_the_papers_search_by_a_preset(running: Running) -> None:
    job = json.loads(running.command("job submit --preset lts-paper --candidates 2 --json").stdout)
    asked = job["request"]
    assert apply_preset("lts-paper", "auto", {}, "auto")["epsilon"] == 0
    assert (asked["proxy"], asked["algorithm"]["name"]) == ("decoder_parameters", "lts")
    assert asked["algorithm"]["settings"] == dict(PRESETS["lts-paper"]["algorithm"]["settings"])
    assert (asked["space"]["narrow"], asked["epsilon"]) == ({}, 0.0)
    running.client.jobs.cancel(job["id"])
    assert apply_preset("lts-paper", "auto", {"iterations": 3}, "auto")["algorithm"]["settings"]["iterations"] == 3
    small = apply_preset("lts-paper", "auto", {"population": 10}, "auto")["algorithm"]["settings"]
    fitted = LtsSettings(**small)
    assert (fitted.parents, fitted.mutants, fitted.crossovers, fitted.iterations) == (2, 4, 4, 30)
    for wrong in (("lts", "auto", "auto"), ("lts-paper", "random", "auto"), ("lts-paper", "auto", "snip")):
        with pytest.raises(InvalidInput) as raised:
            apply_preset(wrong[0], wrong[1], {}, wrong[2])
        assert raised.value.field == "preset"


def test_an_architecture_in_words() -> None:
    stock = space("lts-gpt2").baselines([2])[0]
    assert architecture_in_words(stock.canonical) == "2 layers, d_model 1024, d_inner 3072, 8 heads, div 4"
    free = space("lts-gpt2").narrow({"d_embed": [128], "div": [2]}).baselines([1])[0]
    assert architecture_in_words(free.canonical).endswith("embedding 128 wide, div 2")


@pytest.mark.parametrize("generates", [True, False])
def test_an_answer_fits_a_screen(generates: bool) -> None:
    """A hundred columns and 24 lines hold the sentence, at most four models in six columns, and one command."""
    view = RecommendationView.model_validate(example("recommendation"))
    times = {"first_token_ms": 210.4, "token_ms": 12.3, "total_ms": 600.0} if generates else {}
    candidates = {
        name: value.model_copy(update=times)
        for name, value in {"recommended": view.recommended, "baseline": view.baseline}.items()
        if value is not None
    }
    others = [
        other.model_copy(update={"candidate": other.candidate.model_copy(update=times)}) for other in view.runners_up
    ]
    view = view.model_copy(update={**candidates, "runners_up": tuple(others * 3)})
    console = Console(file=io.StringIO(), width=100)
    show(view, console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    heading = next(line for line in lines if "memory MB" in line)
    assert len([column for column in heading.split("  ") if column.strip()]) <= 6
    assert sum("runner-up" in line for line in lines) == 2
    assert sum(line.startswith("next: edgefront ") for line in lines) == 1
    assert "Not shown" not in "".join(lines)
