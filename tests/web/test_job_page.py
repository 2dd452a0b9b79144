"""A job's live page in a real browser, against the real service."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext, Route, expect
from simulated_agent import RemoteAgent
from watched_page import Submit, Watch

from edgefront.embedded.service import EmbeddedService

OWN_SERVICE = True

ROWS = "document.querySelectorAll('#candidates tbody tr').length"
STATE = "document.getElementById('job-state').textContent"
LIVE = "document.getElementById('live').textContent"
GENERATION = {"mode": "generate", "sequence_length": 16, "new_tokens": 4}
IN_SIGHT = "(cell) => cell.getBoundingClientRect().right <= cell.closest('.scroll').getBoundingClientRect().right"


def random_search(
    api: httpx.Client,
    agent: RemoteAgent,
    space: dict[str, Any],
    *,
    protocol: dict[str, Any] | None = None,
    candidates: int = 3,
    seed: int = 0,
) -> dict[str, Any]:
    """A finished job of a few random candidates on one target."""
    request = {
        "space": space,
        "targets": [{"name": "here", "device": agent.name, "protocol": protocol or {}}],
        "algorithm": {"name": "random"},
        "proxy": "decoder_parameters",
        "budget": {"candidates": candidates, "refinement": 0},
        "seed": seed,
    }
    return agent.finish(api, api.post("/v1/jobs", json=request).raise_for_status().json()["id"])


def counts(api: httpx.Client, job: dict[str, Any], target: int = 0) -> dict[str, int]:
    """What the chart must show, by the API."""
    target_id = job["targets"][target]["id"]
    page = api.get(f"/v1/jobs/{job['id']}/candidates", params={"target": target_id, "limit": 500}).json()
    frontier = api.get(f"/v1/jobs/{job['id']}/frontier", params={"target": target_id}).json()
    measured = [item for item in page["items"] if item["latency_ms"] is not None]
    searched = [item["state"] for item in measured if item["role"] == "search"]
    return {
        "frontier": len(frontier["points"]),
        "dominated": searched.count("measured") - len(frontier["points"]),
        "baseline": len(measured) - len(searched),
        "outside": searched.count("out_of_bounds"),
        "recommended": 1 if measured else 0,
        "selected": 0,
    }


def differences(shown: dict[str, int], expected: dict[str, int]) -> dict[str, tuple[int, int]]:
    """What is counted otherwise, by its name; what was not drawn yet counts as none."""
    return {name: (shown.get(name, 0), count) for name, count in expected.items() if shown.get(name, 0) != count}


def test_frontier_grows_without_reload_until_the_job_has_finished(
    watch: Watch, member: BrowserContext, submit: Submit, api: httpx.Client, agent: RemoteAgent
) -> None:
    job = submit(agent.name, candidates=12, seed=11)
    seen = watch(member, f"/jobs/{job['id']}")
    seen.until(LIVE, "live")
    seen.page.evaluate("window.neverReloaded = true")
    assert sum(seen.points().values()) == 0
    grown = [0]
    while api.get(f"/v1/jobs/{job['id']}").json()["state"] == "running":
        if not agent.measure(6, wait_s=0.2):
            continue
        expected = counts(api, job)
        if expected["baseline"] + expected["frontier"] == 0:
            continue
        seen.eventually(lambda: differences(seen.points(), counts(api, job)), {}, "what chart and API tell apart")
        grown.append(sum(seen.points().values()))
    assert len(grown) > 2
    assert grown == sorted(grown)
    seen.until(STATE, "finished")
    seen.eventually(seen.points, counts(api, job))
    view = api.get(f"/v1/jobs/{job['id']}").json()["targets"][0]
    seen.until("document.getElementById('frontier-size').textContent", str(view["frontier_size"]))
    seen.until("document.getElementById('hypervolume').textContent", f"{view['hypervolume']:.4f}")
    seen.until("document.getElementById('summary').textContent", view["summary"])
    seen.until("document.getElementById('progress').value / document.getElementById('progress').max", 1)
    seen.until(ROWS, view["frontier_size"])
    seen.until(LIVE, "")  # the stream of an ended job is closed
    assert seen.page.evaluate("window.neverReloaded")


def test_an_answer_comes_with_figures_that_come_long_after_their_events(
    watch: Watch, member: BrowserContext, api: httpx.Client, agent: RemoteAgent
) -> None:
    protocol = {"sequence_length": 77}  # by which nothing was measured yet
    targets = [{"device": agent.name, "protocol": protocol}]
    job = api.post("/v1/jobs", json={"targets": targets, "budget": {"candidates": 2}}).raise_for_status().json()
    seen = watch(member, f"/jobs/{job['id']}")
    seen.until(LIVE, "live")
    held: list[Route] = []
    holds = True
    seen.page.route(
        re.compile(r"/candidates\?.*ids="), lambda route: held.append(route) if holds else route.continue_()
    )
    seen.eventually(lambda: agent.measure(2, wait_s=0.2) > 0, True)
    seen.eventually(lambda: len(held) > 0, True)
    seen.page.wait_for_timeout(2500)  # longer than the page waits before it asks again
    assert seen.points().get("recommended", 0) == 0
    holds = False
    for route in held:
        route.continue_()
    seen.eventually(lambda: seen.points().get("recommended", 0), 1)
    seen.page.close()  # it reads the job still
    api.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()


def test_tabs_show_each_target_by_keyboard_and_by_address(
    watch: Watch, member: BrowserContext, finished: dict[str, Any], api: httpx.Client
) -> None:
    seen = watch(member, f"/jobs/{finished['id']}")
    tabs = seen.page.get_by_role("tab")
    seen.until("document.querySelectorAll('[role=tab]').length", 2)
    expect(tabs.nth(0)).to_have_attribute("aria-selected", "true")
    tabs.nth(0).focus()
    seen.page.keyboard.press("ArrowRight")
    expect(tabs.nth(1)).to_have_attribute("aria-selected", "true")
    facts = seen.page.locator("#target-facts")
    expect(facts).to_contain_text("forward pass of 192 tokens")
    expect(facts).to_contain_text("at most 9 ms")
    expected = counts(api, finished, target=1)
    assert expected["outside"] > 0
    seen.eventually(seen.points, expected)
    second = finished["targets"][1]["id"]
    expect(seen.page).to_have_url(re.compile(f"#target={second}$"))
    seen.page.reload()
    seen.until(f"document.getElementById('tab-{second}')?.getAttribute('aria-selected')", "true")


def test_table_sorts_filters_and_is_exported(
    watch: Watch, member: BrowserContext, finished: dict[str, Any], api: httpx.Client
) -> None:
    seen = watch(member, f"/jobs/{finished['id']}")
    target = finished["targets"][0]
    seen.until(ROWS, target["frontier_size"])
    seen.page.locator("#filter").select_option("all")
    seen.until(ROWS, target["candidates"])
    seen.page.locator("#filter").select_option("baseline")
    seen.until(ROWS, counts(api, finished)["baseline"])
    seen.page.locator("#filter").select_option("all")
    seen.until(ROWS, target["candidates"])

    def latencies() -> list[float]:
        return [float(latency.split()[0]) for _, _, latency, *_ in seen.cells("#candidates tbody tr")]

    rising = sorted(latencies())
    seen.page.get_by_role("button", name="Latency").click()
    expect(seen.page.locator("th[aria-sort=ascending]")).to_have_text(re.compile("^Latency"))
    seen.eventually(latencies, rising)
    seen.page.get_by_role("button", name="Latency").click()
    seen.eventually(latencies, rising[::-1])
    with seen.page.expect_download() as download:
        seen.page.get_by_role("link", name="Candidates of this target as csv").click()
    assert len(download.value.path().read_text().splitlines()) == target["candidates"] + 1


def test_downloads_say_that_weights_are_untrained_and_are_the_api_s_bytes(
    watch: Watch, member: BrowserContext, finished: dict[str, Any], api: httpx.Client
) -> None:
    seen = watch(member, f"/jobs/{finished['id']}")
    seen.until(ROWS, finished["targets"][0]["frontier_size"])
    row = seen.page.locator("#candidates tbody tr").first
    candidate = row.get_attribute("data-id")
    expect(seen.page.locator("#candidates thead")).to_contain_text("untrained weights")
    for format_ in ("onnx", "onnx-prefill", "onnx-decode", "safetensors"):
        link = row.locator(f"a[href$='format={format_}']")
        expect(link).to_have_attribute("aria-label", re.compile("untrained weights"))
        with seen.page.expect_download() as download:
            link.click()
        assert "untrained" in download.value.suggested_filename
        kind, _, mode = format_.partition("-")
        assert download.value.suggested_filename.endswith(f"{mode}.{kind}")
        answer = api.get(f"/v1/candidates/{candidate}/model", params={"format": format_})
        assert download.value.path().read_bytes() == answer.content
    with seen.page.expect_download() as download:
        row.locator("a[href$='format=architecture']").click()
    description = json.loads(download.value.path().read_text())
    assert api.get(f"/v1/candidates/{candidate}").json()["architecture"] == description


@pytest.mark.parametrize(
    ("space", "protocol", "onnx_files", "ending"),
    [
        (
            "lts-gpt2",
            {"sequence_length": 8, "memory_length": 8, "weights": "int8"},
            [f"{name} int8" for name in ("ONNX", "prefill", "decode", "segment")],
            "-segment-last-int8.onnx",
        ),
        ("lts-gpt2", GENERATION, ["ONNX", "prefill", "decode", "generate"], "-generate.onnx"),
        ("lts-transformer-xl", GENERATION, ["ONNX", "prefill", "decode"], "-decode.onnx"),
    ],
)
def test_files_are_offered_as_they_were_measured(
    watch: Watch,
    member: BrowserContext,
    api: httpx.Client,
    agent: RemoteAgent,
    space: str,
    protocol: dict[str, Any],
    onnx_files: list[str],
    ending: str,
) -> None:
    narrow = {"n_layer": [2, 3], "d_model": 128, "d_inner": 256, "n_head": 2}
    job = random_search(api, agent, {"name": space, "narrow": narrow}, protocol=protocol)
    seen = watch(member, f"/jobs/{job['id']}")
    seen.until(ROWS, job["targets"][0]["frontier_size"])
    links = seen.page.locator("#candidates tbody tr").first.locator("a[href*='format=']")
    expect(links).to_have_text([*onnx_files, "safetensors", "architecture"])
    with seen.page.expect_download() as download:
        links.nth(len(onnx_files) - 1).click()
    assert download.value.suggested_filename.endswith(ending)


def test_shape_and_downloads_are_in_sight_at_1280_pixels(
    watch: Watch, member: BrowserContext, finished: dict[str, Any]
) -> None:
    seen = watch(member, f"/jobs/{finished['id']}")
    seen.page.set_viewport_size({"width": 1280, "height": 700})
    seen.until(ROWS, finished["targets"][0]["frontier_size"])
    for name in ("Shape", "Download (untrained weights)"):
        heading = seen.page.locator("#candidates").get_by_role("columnheader", name=name)
        expect(heading).to_be_visible()
        seen.eventually(lambda heading=heading: heading.evaluate(IN_SIGHT), True, name)


def test_an_encoder_is_not_offered_the_files_that_generate(
    watch: Watch, member: BrowserContext, api: httpx.Client, agent: RemoteAgent
) -> None:
    space = {"name": "bert", "narrow": {"n_block": [2, 3], "d_model": 128, "d_inner": 256, "n_head": 2}}
    job = random_search(api, agent, space, seed=4)
    seen = watch(member, f"/jobs/{job['id']}")
    seen.until(ROWS, job["targets"][0]["frontier_size"])
    links = seen.page.locator("#candidates tbody tr").first.locator("a[href*='format=']")
    expect(links).to_have_text(["ONNX", "safetensors", "architecture"])
    expect(seen.page.locator("#target-facts")).to_contain_text("output pooled at the first token")
    seen.until("document.getElementById('chart').layout?.yaxis.title.text", "encoder parameters (M)")
    expect(seen.page.locator("#table-note")).to_contain_text("at equal encoder parameters", use_inner_text=True)
    expect(seen.page.locator("#encoder-note")).to_be_visible()
    with seen.page.expect_download() as download:
        links.first.click()
    assert "untrained" in download.value.suggested_filename


def test_text_from_users_and_devices_is_shown_as_text(
    watch: Watch,
    member: BrowserContext,
    submit: Submit,
    service: EmbeddedService,
    api: httpx.Client,
    agent: RemoteAgent,
) -> None:
    job = submit(agent.name, candidates=4, seed=21)
    agent.finish(api, job["id"])
    # The API takes no such names in the first place: this is the second wall.
    attack = '<img src=x onerror="window.attacked=1"><script>window.attacked=1</script>'
    with (
        closing(sqlite3.connect(service.home / "edgefront.db", timeout=60)) as rows,
        rows,
    ):  # the API takes no such names: this is the second wall
        rows.execute("UPDATE job SET name = ?, reason = ?, state = 'failed' WHERE id = ?", (attack, attack, job["id"]))
        rows.execute(
            "UPDATE target SET name = ?, note = ?, state = 'failed' WHERE job_id = ?", (attack, attack, job["id"])
        )
        rows.execute(
            "UPDATE candidate SET operator = ?, state = 'failed', reason = ?, on_frontier = 0 WHERE job_id = ?",
            (attack[:20], attack, job["id"]),
        )
    seen = watch(member, f"/jobs/{job['id']}")
    seen.until("document.getElementById('job-name').textContent", attack)
    seen.page.locator("#filter").select_option("all")
    seen.until(f"{ROWS} > 0")
    expect(seen.page.locator("#candidates tbody")).to_contain_text(attack)
    expect(seen.page.locator("#notice")).to_contain_text(attack)
    seen.page.goto("/")
    seen.until(f"document.body.innerText.includes({json.dumps(attack)})")
    seen.page.wait_for_timeout(200)  # what must not happen gets the time to
    assert seen.page.evaluate("window.attacked") is None
    assert seen.page.locator("main img").count() == 0


def test_a_job_whose_proxy_misleads_says_so(
    watch: Watch, member: BrowserContext, api: httpx.Client, agent: RemoteAgent, finished: dict[str, Any]
) -> None:
    space = {"name": "hybrid", "narrow": {"n_block": [3, 4], "d_model": 128, "d_inner": 256, "n_head": 2}}
    job = random_search(api, agent, space, candidates=8, seed=3)
    seen = watch(member, f"/jobs/{job['id']}")
    seen.until(ROWS, job["targets"][0]["frontier_size"])
    caveat = seen.page.locator("#caveat")
    expect(caveat).to_be_visible()
    expect(caveat).to_have_text(f"About the proxy: {job['proxy_trust']['sentence']}")
    assert "cannot compare kinds of blocks" in job["proxy_trust"]["caveat"]
    seen.page.locator("#filter").select_option("all")
    seen.until(ROWS, job["targets"][0]["candidates"])
    shapes = seen.page.locator("#candidates tbody td:nth-child(14)")
    expect(shapes.filter(has_text=re.compile("1 layer × 128")).first).to_be_visible()  # the stock model
    mixed = re.compile(r"\d (attention|SRU\+\+|feed-forward).* × 128")
    expect(shapes.filter(has_text=mixed).first).to_be_visible()
    other = watch(member, f"/jobs/{finished['id']}")
    other.until(STATE, "finished")
    expect(other.page.locator("#caveat")).to_contain_text("quality_law ranked 200 fully trained models")


def test_a_word_is_explained_by_keyboard_and_by_finger(
    watch: Watch, member: BrowserContext, finished: dict[str, Any]
) -> None:
    seen = watch(member, f"/jobs/{finished['id']}")
    says, word = seen.page.locator("#term"), seen.page.get_by_role("button", name="Frontier", exact=True)
    expect(seen.page.locator("#answer")).to_be_visible()
    word.focus()
    seen.page.keyboard.press("Enter")
    expect(says).to_be_visible()
    expect(says).to_contain_text("when no other candidate of its target dominates it")
    expect(word).to_have_attribute("aria-expanded", "true")
    seen.page.keyboard.press("Escape")
    expect(says).to_be_hidden()
    seen.page.set_viewport_size({"width": 390, "height": 844})
    seen.page.get_by_role("button", name="Measuring share").click()
    expect(says).to_contain_text("wall time")
    box = says.bounding_box()
    assert box is not None
    assert 0 <= box["x"] <= box["x"] + box["width"] <= 382
    seen.page.get_by_role("button", name="Hypervolume").click()
    expect(says).to_contain_text("reference point")
    seen.page.locator("#job-name").click()
    expect(says).to_be_hidden()


def test_why_a_search_ended_is_said(watch: Watch, member: BrowserContext, finished: dict[str, Any]) -> None:
    seen = watch(member, f"/jobs/{finished['id']}")
    expect(seen.page.locator("#target-note")).to_have_text("The search ended: the budget of 20 candidates was spent.")
    expect(seen.page.locator("#answer-facts")).to_contain_text("measured once")
