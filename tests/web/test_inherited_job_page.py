"""Healing from the page of a job that searched the parts of an imported model, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from inherited_models import ROTARY, write_parent
from packages import lively
from playwright.sync_api import BrowserContext, expect
from simulated_agent import RemoteAgent
from watched_page import Watch

from edgefront.client.client import Client
from edgefront.embedded.service import EmbeddedService

LAYER = [
    {"kind": "attention", "n_head": 4, "n_kv_head": 2, "d_head": 32, "bias": "none"},
    {"kind": "feed_forward", "d_inner": 512, "gated": True, "bias": False},
]


@pytest.mark.slow
def test_a_part_is_healed_from_the_page_unless_another_recipe_is_chosen(
    watch: Watch,
    member: BrowserContext,
    service: EmbeddedService,
    agent: RemoteAgent,
    api: httpx.Client,
    tmp_path: Path,
) -> None:
    write_parent(tmp_path / "parent", lively({"d_model": 192, **ROTARY, "blocks": LAYER * 3}, spread=0.05))
    with Client(home=service.home) as client:
        parent = client.trainings.import_model(tmp_path / "parent")
    request = {
        "name": "parts",
        "space": {"inherit": parent.id},
        "targets": [{"device": agent.name}],
        "algorithm": {"settings": {"initial": 4, "batch": 2, "population": 60, "steps": 2}},
        "budget": {"candidates": 8, "refinement": 0},
    }
    submitted = api.post("/v1/jobs", json=request).raise_for_status().json()
    job = agent.finish(api, submitted["id"])
    seen = watch(member, f"/jobs/{job['id']}")
    seen.until("document.querySelectorAll('#candidates tbody tr').length", job["targets"][0]["frontier_size"])
    row = seen.page.locator("#candidates tbody tr").first
    chosen = row.get_attribute("data-id")
    row.get_by_role("button", name="show in the chart").click()
    seen.page.keyboard.press("Tab")
    seen.page.keyboard.press("Enter")  # the row's own button comes next
    dialog = seen.page.get_by_role("dialog")
    train = dialog.get_by_role("button", name="Train", exact=True)
    expect(train).to_be_enabled()
    recipe = dialog.get_by_label("Recipe")
    expect(recipe).to_have_value("distil")
    expect(recipe.locator("option").first).to_have_text("distil (heals: begins with my model's weights)")
    with seen.page.expect_request("**/v1/trainings/estimate*") as estimated:
        recipe.select_option("modern")
    assert estimated.value.post_data_json == {"candidate": chosen, "dataset": "python", "recipe": "modern"}
    recipe.select_option("distil")
    dialog.get_by_label("Steps").fill("25")
    with seen.page.expect_request(lambda asked: asked.method == "POST" and asked.url.endswith("/v1/trainings")) as sent:
        train.click()
    assert json.loads(sent.value.post_data or "") == {
        "candidate": chosen,
        "dataset": "python",
        "recipe": "distil",
        "inherit": True,
        "budget": {"steps": 25},
    }
    seen.page.locator("#chosen-trainings").get_by_text("1 training: python, distil (queued)").wait_for()
    (made,) = api.get("/v1/trainings", params={"job": job["id"]}).json()["items"]
    assert (made["candidate_id"], made["start"], made["inherit"]) == (chosen, parent.id, True)
