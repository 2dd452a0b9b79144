"""One candidate, several targets, and the log of a job, by their pages."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from playwright.sync_api import Browser, BrowserContext, expect
from simulated_agent import RemoteAgent
from watched_page import Watch, inspect
from worked_trainings import Pool

from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate, Launch
from edgefront.embedded.service import EmbeddedService

OWN_SERVICE = True

MARKED_IN_CHART = """[...new Set((document.getElementById('chart').data ?? []).flatMap(
  (trace) => trace.customdata.filter((id, at) => trace.text[at].includes('⚠ marked'))))].join()"""


def test_one_candidate_from_the_answer_to_its_files(
    watch: Watch, member: BrowserContext, api: httpx.Client, predicted: dict[str, Any], pool: Pool
) -> None:
    seen = watch(member, f"/jobs/{predicted['id']}")
    page = seen.page
    page.get_by_role("link", name="All about it").click()
    candidate_id = urlsplit(page.url).path.rsplit("/", 1)[1]
    details = api.get(f"/v1/candidates/{candidate_id}/details").json()
    candidate = details["candidate"]
    expect(page.locator("h1")).to_have_text(f"Candidate {candidate['number']}")
    rows = page.locator("#blocks tbody tr")
    expect(rows).to_have_count(len(candidate["architecture"]["blocks"]))
    heads = candidate["architecture"]["blocks"][0]["n_head"]
    assert rows.first.locator("svg rect:not(.stream)").count() == heads
    expect(rows.first).to_contain_text(f"{heads} head")
    expect(page.locator("#parts")).to_be_visible()
    expect(rows.first.locator("td").last).to_contain_text("ms")
    expect(page.locator("#latency-total")).to_contain_text("measured")
    expect(page.locator("#memory-parts tbody tr").first).to_contain_text("weights")
    launches = api.get(f"/v1/candidates/{candidate_id}/launches").json()
    expect(page.locator("#launches tbody tr")).to_have_count(len(launches))
    samples = launches[0]["result"]["latency"]["samples_ms"]
    assert page.locator("#launches tbody tr").first.locator("circle.sample").count() == len(samples)
    expect(page.locator("#no-trainings")).to_be_visible()
    inspect(seen)
    with page.expect_download() as download:
        page.get_by_role("link", name="download the description").click()
    assert json.loads(download.value.path().read_text()) == candidate["architecture"]
    formats = page.locator("#downloads tbody tr")
    expect(formats).to_have_count(len(details["downloads"]))
    page.get_by_role("link", name="Show in its job").click()
    expect(page.locator("#chosen-title")).to_have_text(f"Candidate {candidate['number']}")


def test_what_is_marked_or_cannot_be_true_says_so(
    watch: Watch, member: BrowserContext, api: httpx.Client, predicted: dict[str, Any], service: EmbeddedService
) -> None:
    """A marked candidate with a launch that cannot be true, among those that count."""
    path = f"/v1/jobs/{predicted['id']}"
    point = api.get(f"{path}/frontier").json()["points"][0]
    honest = api.get(f"/v1/candidates/{point['id']}/launches").json()[0]
    reason = "implausible: 0.001 ms is beyond what its processor can do"
    database = Database(f"sqlite:///{service.home / 'edgefront.db'}")
    with database.write() as session:
        candidate = session.get_one(Candidate, point["id"])
        candidate.marked = True
        now = database.now(session)
        result = {**honest["result"], "latency": {"warmup_ms": [0.001], "samples_ms": [0.001] * 5}}
        session.add(
            Launch(
                measurement_id=candidate.measurement_id, device_key="device:none", state="implausible",
                purpose="repeat", reason=reason, result=result, created_at=now, finished_at=now,
            )
        )  # fmt: skip
    database.dispose()
    seen = watch(member, f"/jobs/{predicted['id']}")
    sign = seen.page.locator(f"#candidates tr[data-id='{point['id']}'] .mark")
    expect(sign).to_have_attribute("title", re.compile("out of the ordinary"))
    expect(seen.page.locator("#candidates .mark")).to_have_count(1)
    seen.until(MARKED_IN_CHART, point["id"])
    sign.scroll_into_view_if_needed()
    seen = watch(member, f"/jobs/{predicted['id']}/candidates/{point['id']}")
    expect(seen.page.locator("#figures .mark")).to_have_count(1)
    row = seen.page.locator("#launches tbody tr", has_text="check of a launch, implausible")
    expect(row).to_contain_text(reason)
    expect(row.locator("svg")).to_have_count(0)
    least = min(honest["result"]["latency"]["samples_ms"] + honest["result"]["latency"]["warmup_ms"])
    expect(seen.page.locator("#launches-note")).not_to_contain_text("from 0.001 ms")
    assert least > 0.1
    row.scroll_into_view_if_needed()
    inspect(seen)


def test_a_lineage_leads_from_child_to_parent(
    watch: Watch, member: BrowserContext, api: httpx.Client, agent: RemoteAgent
) -> None:
    request = {
        "name": "with parents",
        "space": {"narrow": {"n_layer": [2, 3], "d_model": {"min": 64, "max": 192, "step": 64}}},
        "targets": [{"device": agent.name}],
        "algorithm": {"name": "lts", "settings": {"iterations": 2, "population": 8}},
        "budget": {"refinement": 0},
        "proxy": "decoder_parameters",
        "seed": 11,
    }
    job = agent.finish(api, api.post("/v1/jobs", json=request).raise_for_status().json()["id"])
    items = api.get(f"/v1/jobs/{job['id']}/candidates", params={"limit": 500}).json()["items"]
    child = next(item for item in items if item["parents"])
    numbers = {item["id"]: item["number"] for item in items}
    seen = watch(member, f"/jobs/{job['id']}")
    seen.page.locator("#filter").select_option("all")
    expect(seen.page.locator(f"#candidates tr[data-id='{child['id']}']")).to_contain_text(
        f"generation {child['generation']}, {child['operator']} of #{numbers[child['parents'][0]]}"
    )
    seen.page.goto(f"/jobs/{job['id']}/candidates/{child['id']}")
    rows = seen.page.locator("#lineage tbody tr")
    expect(rows.first).to_contain_text("parent:")
    parent = next(item for item in items if item["id"] == min(child["parents"]))
    seen.page.get_by_role("link", name=f"Candidate {parent['number']}", exact=True).click()
    expect(seen.page.locator("h1")).to_have_text(f"Candidate {parent['number']}")
    missing = watch(member, f"/jobs/{job['id']}/candidates/cnd_none")
    expect(missing.page.get_by_role("alert")).to_contain_text("Could not load the candidate")
    missing.forgive(404)


def test_two_targets_compared_and_sent_to_a_colleague(
    watch: Watch, member: BrowserContext, api: httpx.Client, finished: dict[str, Any], predicted: dict[str, Any]
) -> None:
    seen = watch(member, f"/jobs/{finished['id']}")
    page = seen.page
    page.locator(".actions").get_by_role("link", name="Compare").click()
    rows = page.locator("#targets tbody tr")
    expect(rows).to_have_count(2)
    ids = [target["id"] for target in finished["targets"]]
    assert parse_qs(urlsplit(page.url).query) == {"target": ids}
    comparison = api.get("/v1/comparison", params={"target": ids}).json()
    models = page.locator("#architectures tbody tr")
    expect(models).to_have_count(len(comparison["architectures"]))
    expect(page.locator("#verdict")).to_have_text(
        re.compile(r"^(No sure difference in latency: )?bounded \(2\) takes ")
    )
    seen.until("document.getElementById('chart').data?.length", 4)
    page.get_by_label("Job", exact=True).select_option(label=f"{predicted['name']} ({predicted['owner']})")
    page.get_by_role("button", name="Add to the comparison").click()
    expect(rows).to_have_count(3)
    ids.append(predicted["targets"][0]["id"])
    page.get_by_label("Only those measured on every target").check()
    compared = api.get("/v1/comparison", params={"target": ids}).json()["architectures"]
    everywhere = [model for model in compared if all(here and not here["predicted"] for here in model["entries"])]
    expect(models).to_have_count(len(everywhere))
    page.get_by_label("Only those measured on every target").uncheck()
    page.get_by_role("button", name="free: latency").click()
    page.locator("#architectures button.pick").first.click()
    expect(page.locator("#architectures tr.selected")).to_have_count(1)
    inspect(seen)
    first = page.locator("#architectures tbody tr").first.text_content()
    address = page.url
    query = parse_qs(urlsplit(address).query)
    assert query == {"target": ids, "sort": ["latency-0"]}
    colleague = watch(member, address.removeprefix(seen.origin))
    expect(colleague.page.locator("#targets tbody tr")).to_have_count(3)
    expect(colleague.page.locator("#architectures tbody tr").first).to_have_text(first or "")
    colleague.page.locator("#targets tbody tr").last.get_by_role("button", name="Remove").click()
    expect(colleague.page.locator("#targets tbody tr")).to_have_count(2)
    colleague.page.locator("#targets tbody tr").last.get_by_role("button", name="Make the first").click()
    expect(colleague.page.locator("#targets tbody tr").first).to_contain_text("bounded")


def test_nothing_to_compare_yet_is_said(watch: Watch, member: BrowserContext, finished: dict[str, Any]) -> None:
    seen = watch(member, "/compare")
    expect(seen.page.locator("#nothing")).to_have_text("Choose the first target.")
    inspect(seen)
    wrong = watch(member, "/compare?target=tgt_none")
    expect(wrong.page.get_by_role("alert")).to_contain_text("no target")
    wrong.forgive(404)


def test_many_targets_of_a_job_are_compared(
    watch: Watch, member: BrowserContext, api: httpx.Client, agent: RemoteAgent
) -> None:
    request = {
        "name": "many targets",
        "targets": [
            {"name": f"limit {ms}", "device": agent.name, "limits": {"latency_ms": ms}} for ms in range(101, 111)
        ],
        "budget": {"candidates": 1},
    }
    job = api.post("/v1/jobs", json=request).raise_for_status().json()
    try:
        seen = watch(member, f"/compare?job={job['id']}")
        expect(seen.page.locator("#targets tbody tr")).to_have_count(10)
        expect(seen.page.get_by_text("targets are compared.")).to_have_count(0)
        assert len(parse_qs(urlsplit(seen.page.url).query)["target"]) == 10
    finally:
        api.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()


def test_the_log_of_a_job_in_words(watch: Watch, member: BrowserContext, finished: dict[str, Any]) -> None:
    seen = watch(member, f"/jobs/{finished['id']}")
    seen.page.get_by_role("link", name="Log", exact=True).click()
    log = seen.page.get_by_role("log")
    expect(log).to_contain_text("free: baseline 0 proposed")
    expect(log).to_contain_text("free: frontier:")
    expect(log).to_contain_text("the job is finished")
    assert "launch lau_" not in (log.text_content() or "")
    expect(seen.page.locator("#live")).to_have_text("the job has ended: finished")
    inspect(seen)
    seen.page.get_by_label("Show").select_option("states")
    expect(log).not_to_contain_text("proposed (")
    seen.page.get_by_label("Show").select_option("all")
    expect(log).to_contain_text("launch lau_")
    script = seen.page.locator("script[src$='pages/job_log.js']").get_attribute("src") or ""
    failed = {"number": 3, "state": "failed", "reason": "3 attempts; the last: crashed"}
    event = {"kind": "candidate", "target_id": None, "data": {**failed, "role": "search", "latency_ms": None}}
    words = seen.page.evaluate(
        "async ([path, event]) => (await import(path)).inWords(event, new Map())",
        [script.replace("pages/job_log.js", "job/events.js"), event],
    )
    assert words == "candidate 3 failed: 3 attempts; the last: crashed"


def test_a_viewer_sees_all_and_is_offered_nothing_that_changes(
    watch: Watch,
    browser: Browser,
    service: EmbeddedService,
    api: httpx.Client,
    finished: dict[str, Any],
    agent: RemoteAgent,
) -> None:
    key = api.post("/v1/keys", json={"name": "manager", "role": "viewer"}).raise_for_status().json()["key"]
    context = browser.new_context(base_url=service.url)
    seen = watch(context, "/login")
    seen.sign_in(key, "/")
    page = seen.page
    expect(page.locator("#owner")).to_have_text("manager, reads only")
    expect(page.get_by_role("link", name="New search")).to_be_hidden()
    page.get_by_role("link", name="two targets").click()
    expect(page.locator("#frontier-size")).not_to_have_text("–")
    for name in ("Duplicate…", "Delete…", "Train…"):
        expect(page.get_by_text(name, exact=True).first).to_be_hidden()
    page.goto(f"{service.url}/devices/{agent.name}")
    expect(page.locator("#health")).to_be_visible()
    for name in ("Drain", "Revoke…", "Enrol again…"):
        expect(page.get_by_role("button", name=name)).to_be_hidden()
    page.goto(f"{service.url}/devices")
    expect(page.locator("#add-who")).to_be_visible()
    expect(page.get_by_role("button", name="Add a device")).to_be_hidden()
    context.close()
