"""The training budget on pages: a selector beside the limits that answers at once, and a field of a new search."""

from __future__ import annotations

from typing import Any

import httpx
from ended_trainings import end_trainings_in
from playwright.sync_api import BrowserContext, expect
from simulated_agent import RemoteAgent
from watched_page import Watch

from edgefront.client.show.frontier_table import predicted_quality
from edgefront.core.schemas.predictions import PredictedView
from edgefront.embedded.service import EmbeddedService

OWN_SERVICE = True


def recommendation(api: httpx.Client, job: dict[str, Any], **query: float) -> dict[str, Any]:
    return dict(api.get(f"/v1/jobs/{job['id']}/recommendation", params=query).raise_for_status().json())


def on_a_terminal(answer: dict[str, Any]) -> str:
    """The predicted perplexity of the recommended model, as a terminal shows it."""
    return predicted_quality(PredictedView.model_validate(answer["recommended"]["predicted"]))


def test_another_budget_is_answered_at_once_and_the_address_holds_it(
    watch: Watch, member: BrowserContext, by_tokens: dict[str, Any], api: httpx.Client
) -> None:
    other = recommendation(api, by_tokens, train_tokens=10**11)
    seen = watch(member, f"/jobs/{by_tokens['id']}")
    budget = seen.page.get_by_label("To be trained on")
    expect(budget.locator("option").first).to_have_text("10 billion tokens, as the search")
    expect(seen.page.locator("#answer-hint")).to_contain_text("on 10 billion tokens")
    budget.select_option(label="100 billion tokens")
    expect(seen.page.locator("#answer-hint")).to_contain_text("on 100 billion tokens")
    # The answer is for that training, chart and table for the search's: each says so.
    expect(seen.page.locator("#answer-perplexity")).to_have_text("Perplexity (Dolma, 100B tokens, finished schedule)")
    label = "Dolma, 10B tokens, finished schedule"
    expect(seen.page.locator("#candidates th.predicted")).to_have_text(f"Predicted perplexity ({label})")
    seen.until("document.getElementById('chart').layout?.yaxis.title.text", f"predicted perplexity<br>{label}")
    best = seen.page.locator("#answer-table tbody tr").first
    expect(best).to_contain_text(on_a_terminal(other).replace("*", ", extrapolated"))
    seen.until("location.search", "?train_tokens=100000000000")
    seen.page.reload()
    expect(budget.locator("option:checked")).to_have_text("100 billion tokens")
    expect(seen.page.locator("#answer-hint")).to_contain_text("on 100 billion tokens")
    budget.select_option(index=0)
    seen.until("location.search", "")
    expect(seen.page.locator("#answer-hint")).to_contain_text("on 10 billion tokens")


def test_hours_on_a_worker_are_offered_and_answered(
    watch: Watch, member: BrowserContext, by_tokens: dict[str, Any], service: EmbeddedService, api: httpx.Client
) -> None:
    end_trainings_in(service.home, "gpu-box")
    seen = watch(member, f"/jobs/{by_tokens['id']}")
    budget = seen.page.get_by_label("To be trained on")
    budget.select_option(label="6 hours on gpu-box")
    expect(seen.page.locator("#answer-hint")).to_contain_text("as many tokens as 6 hours on gpu-box take")
    seen.until("location.search", "?train_hours=6&trainer=gpu-box")
    seen.page.reload()
    expect(budget.locator("option:checked")).to_have_text("6 hours on gpu-box")
    other = api.get(
        f"/v1/jobs/{by_tokens['id']}/recommendation", params={"train_hours": 6, "trainer": "gpu-box"}
    ).json()
    best = seen.page.locator("#answer-table tbody tr").first
    expect(best).to_contain_text(on_a_terminal(other).replace("*", ", extrapolated"))
    seen.page.goto(f"/jobs/{by_tokens['id']}?train_hours=6&trainer=gone")
    seen.forgive(422)
    expect(seen.page.locator("#answer-hint")).to_contain_text("on 10 billion tokens")  # the job's own

    seen.page.goto("/new")
    seen.page.locator("#submit:enabled").wait_for()
    seen.page.locator("#more > summary").click()
    seen.page.locator("#space").select_option("llama")
    seen.page.get_by_label("or hours of training").fill("6")
    expect(seen.page.get_by_label("on the worker")).to_have_value("gpu-box")
    expect(seen.page.locator("#submit")).to_be_enabled()
    seen.page.get_by_label("Training tokens").fill("10B")
    expect(seen.page.locator("#problem")).to_contain_text("not both")
    seen.forgive(422)


def test_a_new_search_takes_the_training_tokens(watch: Watch, member: BrowserContext, agent: RemoteAgent) -> None:
    seen = watch(member, "/new")
    tokens, problem = seen.page.get_by_label("Training tokens"), seen.page.locator("#train-tokens-problem")
    seen.page.locator("#submit:enabled").wait_for()
    seen.page.locator("#more > summary").click()
    for wrong in ("10 B", "0", "10^30"):
        tokens.fill(wrong)
        expect(problem).to_contain_text("Must be a count of tokens such as 300M, 10B or 1e9")
        expect(seen.page.locator("#submit")).to_be_disabled()
    tokens.fill("10B")
    expect(problem).to_have_text("")
    expect(seen.page.locator("#submit")).to_be_enabled()
    seen.page.locator("#space").select_option("lts-gpt2")  # its scaling law has one budget
    expect(tokens).to_be_hidden()
    expect(seen.page.locator("#submit")).to_be_enabled()
