"""The training budget in commands: how it is written, what it changes, and where it is refused."""

from __future__ import annotations

import json

import pytest
from running_client import BOARD, Running

from edgefront.cli import exits
from edgefront.client.show.frontier_table import predicted_quality, quality_header, quality_label
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.units import MAX_TRAIN_TOKENS, parse_token_count
from edgefront.core.schemas.predictions import PredictedView

WRONG = ("0", "10 B", "10^30", "1e30", "-5", "0.5", "1.5", "", "B", "1e-3", "10G", "1e18K", "١B", "nan", "1" * 40)
LLAMA = ("--space", "llama", "--narrow", "n_layer=2..3 d_model=128,192 d_inner=256..640:64")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("10B", 10**10),
        ("300M", 3 * 10**8),
        ("1e9", 10**9),
        ("10000000000", 10**10),
        ("1.5t", 15 * 10**11),
        ("2k", 2000),
        ("1", 1),
        ("1e18", MAX_TRAIN_TOKENS),
        ("0.3B", 3 * 10**8),
    ],
)
def test_counts_of_tokens_are_read_exactly(text: str, count: int) -> None:
    assert parse_token_count(text) == count


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_count_of_tokens_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_token_count(text, "tokens")
    assert str(caught.value).startswith(
        f"--tokens {text!r} is not a count of tokens: give a count from 1 to 10^18, such as"
    )
    assert caught.value.field == "tokens"


def test_a_search_for_a_budget_ranks_by_it(running: Running) -> None:
    asked = ("--law", "llama-dolma-cooled", "--train-tokens", "10B", "--candidates", "4", "--max-latency-ms", "500")
    done = running.command("find --json", "--device", f"class={BOARD}", *LLAMA, *asked, code=exits.OK)
    answer = json.loads(done.stdout)
    assert running.client.jobs.get(answer["job"]).request.train_tokens == 10**10
    view = answer["targets"][0]["recommendation"]
    assert view["recommended"]["predicted"]["train_tokens"] == 1e10
    assert "on 10 billion tokens" in view["perplexity_of"]
    label = "Dolma, 10B tokens, finished schedule"
    assert view["recommended"]["predicted"]["label"] == label
    assert f"perplexity: {label}" in running.command("frontier", answer["job"]).stdout
    assert f"perplexity: {label}" in running.command("compare", answer["job"]).stdout
    assert (
        f"Predicted perplexity: {label} (Dolma, validation"
        in running.command("job recommend --explain", answer["job"]).stdout
    )


def test_a_ratio_is_never_shown_as_a_perplexity() -> None:
    ratio = PredictedView(perplexity=0.83, perplexity_low=0.72, perplexity_high=0.95, relative_to="smollm2-135m")
    perplexity = PredictedView(perplexity=31.2, perplexity_low=30.3, perplexity_high=32.1, extrapolated=True)
    assert predicted_quality(ratio) == "0.83× (0.72–0.95)"
    assert predicted_quality(perplexity) == "31.2 ± 0.9*"
    assert predicted_quality(None) == predicted_quality(PredictedView()) == "–"
    assert quality_header([ratio]) == "predicted perplexity, smollm2-135m = 1"
    assert quality_header([perplexity, None]) == "predicted perplexity"
    labelled = [each.model_copy(update={"label": label}) for each, label in ((ratio, "a"), (perplexity, "b"))]
    assert quality_label([*labelled, labelled[0], None, PredictedView(label="c")]) == "a or b"
