"""Healing from the page of a job that searched the parts of an imported model, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    dialog = seen.page.get_by_role("dialog")
    recipe, train = dialog.get_by_label("Recipe"), dialog.get_by_role("button", name="Train", exact=True)

    def open_dialog() -> None:
        row.get_by_role("button", name="show in the chart").focus()
        seen.page.keyboard.press("Tab")
        seen.page.keyboard.press("Enter")  # the row's own button comes next
        expect(train).to_be_enabled()

    def submitted_training() -> dict[str, Any]:
        with seen.page.expect_request(
            lambda asked: asked.method == "POST" and asked.url.endswith("/v1/trainings")
        ) as sent:
            train.click()
        expect(dialog).to_be_hidden()
        return dict(sent.value.post_data_json)

    open_dialog()
    expect(recipe).to_have_value("distil")
    expect(recipe.locator("option").first).to_have_text("distil (heals: begins with my model's weights)")
    recipe.select_option("modern")
    assert submitted_training() == {"candidate": chosen, "dataset": "python", "recipe": "modern"}
    open_dialog()
    recipe.select_option("distil")
    dialog.get_by_label("Steps").fill("25")
    body = {"candidate": chosen, "dataset": "python", "recipe": "distil", "inherit": True, "budget": {"steps": 25}}
    assert submitted_training() == body
    expect(seen.page.locator("#chosen-trainings")).to_contain_text("2 trainings: python, distil (queued)")
    healed, other = api.get("/v1/trainings", params={"job": job["id"]}).json()["items"]
    assert (healed["candidate_id"], healed["start"], healed["inherit"]) == (chosen, parent.id, True)
    assert (other["candidate_id"], other["start"], other["inherit"]) == (chosen, None, False)
