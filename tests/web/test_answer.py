"""The answer on a job's page: the recommended model, sliders for limits, predicted against measured."""

from __future__ import annotations

import re
from typing import Any

import httpx
from playwright.sync_api import Browser, BrowserContext, expect
from simulated_agent import RemoteAgent
from watched_page import Submit, Watch

from edgefront.embedded.service import EmbeddedService

MARKED = "document.getElementById('chart').data?.find((trace) => trace.uid === 'recommended')?.customdata[0]"


def recommendation(api: httpx.Client, job: dict[str, Any], **limits: float) -> dict[str, Any]:
    answer = api.get(f"/v1/jobs/{job['id']}/recommendation", params=limits)
    return dict(answer.raise_for_status().json())


def latency_of(api: httpx.Client, job: dict[str, Any], quickest: bool) -> float:
    items = api.get(f"/v1/jobs/{job['id']}/candidates", params={"limit": 500}).json()["items"]
    measured = [item["latency_ms"] for item in items if item["latency_ms"] is not None]
    return float(min(measured) if quickest else sorted(measured)[len(measured) // 2])


def test_the_recommended_model_is_marked_in_box_chart_and_table(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any], api: httpx.Client
) -> None:
    view = recommendation(api, predicted)
    best = view["recommended"]
    seen = watch(member, f"/jobs/{predicted['id']}")
    expect(seen.page.locator("#answer-sentence")).to_have_text(view["sentence"])
    rows = seen.page.locator("#answer-table tbody tr")
    names = ["Recommended", *(["Baseline"] if view["baseline"]["id"] != best["id"] else []), *["Runner-up"] * 3]
    expect(rows.locator("th")).to_have_text(names)
    low, high = best["predicted"]["perplexity_low"], best["predicted"]["perplexity_high"]
    expect(rows.first).to_contain_text(f"{best['predicted']['perplexity']:.2f}× ({low:.2f} to {high:.2f})")
    expect(rows.last).to_contain_text(view["runners_up"][-1]["trade"])
    expect(seen.page.locator("#answer-hint")).to_contain_text("your own data")
    seen.until(MARKED, best["id"])
    expect(seen.page.locator("#legend")).to_contain_text("Recommended")
    row = seen.page.locator(f"#candidates tr.recommended[data-id='{best['id']}']")
    seen.page.locator("#filter").select_option("all")
    expect(row).to_contain_text("Recommended")
    expect(seen.page.locator("#candidates tr.recommended")).to_have_count(1)
    seen.page.locator("#answer-next summary").click()
    expect(seen.page.locator("#answer-commands")).to_contain_text(f"edgefront model download {best['id']}")
    with seen.page.expect_download() as download:
        seen.page.locator("#answer-download a").click()
    assert "untrained" in download.value.suggested_filename
    seen.page.locator("#answer-train").click()
    expect(seen.page.locator("#training-title")).to_have_text(f"Train candidate {best['number']}")


BOTTOM = """(selector) => Math.max(...Array.from(document.querySelectorAll(selector))
  .filter((node) => node.checkVisibility()).map((node) => node.getBoundingClientRect().bottom))"""


def test_the_first_screen_holds_the_answer_its_limits_the_chart_and_what_to_do_next(
    watch: Watch, member: BrowserContext, generation: dict[str, Any], api: httpx.Client
) -> None:
    limits = {"max_latency_ms": 1000, "max_memory_mb": 1000}
    view = recommendation(api, generation, **limits)
    seen = watch(member, "/")
    seen.page.set_viewport_size({"width": 1280, "height": 800})
    seen.page.goto(f"/jobs/{generation['id']}?{httpx.QueryParams(limits)}")
    sentence = seen.page.locator("#answer-sentence")
    expect(sentence).to_have_text(view["sentence"])
    assert view["sentence"].startswith("Within 1000 ms, 1000 MB and 5 ms to the first token")
    seen.until(MARKED, view["recommended"]["id"])
    box, line = (
        sentence.bounding_box(),
        "parseFloat(getComputedStyle(document.querySelector('#answer-sentence')).lineHeight)",
    )
    assert box is not None
    assert box["height"] < 3.1 * seen.page.evaluate(line)
    for selector in ("#limits input", "#answer-download a", "#answer-train", "#chart"):
        assert seen.page.evaluate(f"({BOTTOM})({selector!r})") <= 800, selector
    expect(seen.page.locator("#limits input[type=range]:visible")).to_have_count(4)


def test_nothing_that_explains_an_answer_is_said_twice(
    watch: Watch, member: BrowserContext, by_tokens: dict[str, Any], api: httpx.Client
) -> None:
    note = recommendation(api, by_tokens)["note"].replace("`", "")
    assert "No training data of the scaling law" in note
    assert "No training data of the scaling law" in by_tokens["proxy_trust"]["sentence"]
    seen = watch(member, f"/jobs/{by_tokens['id']}")
    expect(seen.page.locator("#answer-sentence")).not_to_be_empty()
    seen.page.locator("#why summary").click()
    text = seen.page.locator("main").inner_text()
    assert [text.count(sentence) for sentence in re.split(r"(?<=\.) ", note)] == [1] * (note.count(". ") + 1)


def test_a_slider_is_answered_at_once_without_a_new_job_and_the_address_holds_it(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any], api: httpx.Client
) -> None:
    jobs, launches = len(api.get("/v1/jobs").json()["items"]), predicted["targets"][0]["launches_done"]
    first = recommendation(api, predicted)["recommended"]
    seen = watch(member, f"/jobs/{predicted['id']}")
    seen.until(MARKED, first["id"])
    slider = seen.page.get_by_role("slider", name="Latency at most")
    expect(slider).to_have_attribute("aria-valuetext", "no limit")
    slider.focus()
    for _ in range(100):
        seen.page.keyboard.press("ArrowLeft")
    limit = float(seen.page.locator("#latency-limit").input_value())
    assert limit < first["latency_ms"]
    expect(slider).to_have_attribute("aria-valuetext", f"{limit:g} ms")
    view = recommendation(api, predicted, max_latency_ms=limit)
    expect(seen.page.locator("#answer-sentence")).to_have_text(view["sentence"])
    seen.until(MARKED, view["recommended"]["id"])
    expect(seen.page).to_have_url(re.compile(rf"\?max_latency_ms={limit:g}$"))
    seen.page.reload()
    seen.until(MARKED, view["recommended"]["id"])
    expect(seen.page.locator("#latency-limit")).to_have_value(f"{limit:g}")
    expect(seen.page.locator("#answer-note")).to_contain_text("The search looked without limits")
    seen.page.locator("#limits-reset").click()
    seen.until(MARKED, first["id"])
    seen.until("location.search", "")
    after = api.get(f"/v1/jobs/{predicted['id']}").json()["targets"][0]["launches_done"]
    assert (len(api.get("/v1/jobs").json()["items"]), after) == (jobs, launches)


def test_where_nothing_fits_a_button_moves_the_limit(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any], api: httpx.Client
) -> None:
    seen = watch(member, f"/jobs/{predicted['id']}")
    limit = seen.page.get_by_role("spinbutton", name="Latency at most")
    limit.fill(f"{latency_of(api, predicted, quickest=True) / 2:.4g}")
    expect(seen.page.locator("#answer-title")).to_have_text("No model within the limits")
    expect(seen.page.locator("#answer-table tbody th")).to_have_text(["Nearest"])
    expect(seen.page.locator("#answer-sentence")).to_contain_text("raise the latency limit")
    seen.until(f"{MARKED} === undefined")
    seen.page.locator("#answer-moves button").click()
    expect(seen.page.locator("#answer-title")).to_have_text("Recommended model")
    limit.fill("-1")
    expect(seen.page.locator("#limits-problem")).to_have_text("A limit is a number above 0, in ms.")
    expect(limit).to_have_attribute("aria-invalid", "true")
    seen.page.goto(f"/jobs/{predicted['id']}?max_memory_mb=-5")
    expect(seen.page.locator("#limits-problem")).to_have_text("A limit is a number above 0, in MB.")


def test_each_target_keeps_its_limits(
    watch: Watch, member: BrowserContext, finished: dict[str, Any], api: httpx.Client
) -> None:
    middle = latency_of(api, finished, quickest=False)
    seen = watch(member, f"/jobs/{finished['id']}?max_latency_ms={middle:.4g}")
    limit = seen.page.locator("#latency-limit")
    expect(limit).to_have_value(f"{middle:.4g}")
    seen.page.get_by_role("tab").nth(1).click()
    expect(limit).to_have_value("9")  # the target's own
    seen.until("location.search", "")
    seen.page.get_by_role("tab").nth(0).click()
    expect(limit).to_have_value(f"{middle:.4g}")
    seen.until("location.search", f"?max_latency_ms={middle:.4g}")


def test_a_generation_has_limits_on_its_times(
    watch: Watch, member: BrowserContext, generation: dict[str, Any], predicted: dict[str, Any], api: httpx.Client
) -> None:
    items = api.get(f"/v1/jobs/{generation['id']}/candidates", params={"limit": 500}).json()["items"]
    limit = sorted(item["token_ms"] for item in items)[len(items) // 2]
    seen = watch(member, f"/jobs/{generation['id']}")
    first, each = (seen.page.get_by_role("spinbutton", name=name) for name in ("First token after", "Each further"))
    expect(first).to_have_value("5")  # the target's own
    expect(seen.page.get_by_role("slider", name="Whole generation at most")).to_be_visible()
    each.fill(f"{limit:.6g}")
    view = recommendation(api, generation, max_token_ms=float(f"{limit:.6g}"))
    expect(seen.page.locator("#answer-sentence")).to_have_text(view["sentence"])
    expect(seen.page).to_have_url(re.compile(r"\?max_token_ms="))
    slider = seen.page.get_by_role("slider", name="Each further token at most")
    slider.press("Home")
    least = float(each.input_value())
    assert least < min(item["token_ms"] for item in items)
    expect(seen.page.locator("#answer-title")).to_have_text("No model within the limits")
    seen.page.locator("#limits-reset").click()
    expect(each).to_have_value("")
    other = watch(member, f"/jobs/{predicted['id']}?max_token_ms=3")  # an address of another job
    expect(other.page.locator("#answer-sentence")).not_to_have_text("")
    expect(other.page.get_by_role("slider", name="Each further token at most")).not_to_be_visible()
    other.until("location.search", "")


def test_the_recommended_model_is_predicted_for_another_device(
    watch: Watch,
    member: BrowserContext,
    predicted: dict[str, Any],
    service: EmbeddedService,
    submit: Submit,
    api: httpx.Client,
) -> None:
    measured, fresh = (RemoteAgent(service.url, service.key, name=name) for name in ("board-known", "board-fresh"))
    measured.finish(api, submit("board-known", seed=9, candidates=20)["id"])
    seen = watch(member, f"/jobs/{predicted['id']}")
    choice, says = seen.page.get_by_label("Predict for"), seen.page.locator("#elsewhere-says")
    choice.select_option("board-known")
    expect(says).to_have_text(re.compile(r"^On board-known: (predicted|measured) [\d.]+ ms"))
    choice.select_option("board-fresh")
    expect(says).to_have_text(re.compile("^No prediction for board-fresh: "))
    expect(says).to_contain_text(f"edgefront job extend {predicted['id']} --target board-fresh")
    seen.forgive(409)
    choice.select_option("")
    expect(says).not_to_be_visible()
    for agent in (measured, fresh):
        api.post(f"/v1/devices/{agent.device_id}/revoke").raise_for_status()
        agent.close()


def test_the_list_of_jobs_says_the_answer_of_each(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any], api: httpx.Client
) -> None:
    short = recommendation(api, predicted)["short"]
    assert " ms" in short
    asked: list[str] = []
    seen = watch(member, "/docs")
    seen.page.on("request", lambda request: asked.append(request.url))
    for path in ("/jobs", "/"):
        seen.page.goto(path)
        row = seen.page.locator("#jobs tbody tr", has=seen.page.locator(f"a[href$='{predicted['id']}']"))
        expect(row).to_contain_text(short)
    assert [url for url in asked if "recommendation" in url] == []


def test_the_answer_is_copied_printed_and_saved_as_a_picture(
    watch: Watch, browser: Browser, service: EmbeddedService, predicted: dict[str, Any], api: httpx.Client
) -> None:
    allowed = browser.new_context(base_url=service.url, permissions=["clipboard-read", "clipboard-write"])
    seen = watch(allowed, "/login")
    seen.sign_in(service.key, f"/jobs/{predicted['id']}")
    sentence = recommendation(api, predicted)["sentence"]
    expect(seen.page.locator("#answer-sentence")).to_have_text(sentence)
    seen.until(MARKED, recommendation(api, predicted)["recommended"]["id"])
    seen.page.get_by_role("button", name="Copy answer").click()
    expect(seen.page.locator("#copy-answer")).to_have_text("Copied")
    first, *_, conditions, link = seen.page.evaluate("navigator.clipboard.readText()").split("\n")
    assert (first, link) == (sentence, seen.page.url)
    assert "forward pass of 192 tokens" in conditions
    with seen.page.expect_download() as download:
        seen.page.get_by_role("button", name="SVG").click()
    picture = download.value.path().read_text(encoding="utf-8")
    for text in (
        predicted["name"],
        "forward pass of 192 tokens",
        "Recommended",
        "Frontier",
        "Baseline",
        "latency (ms)",
    ):
        assert text in picture
    seen.page.evaluate("window.print = () => (window.folded = document.querySelectorAll('details:not([open])').length)")
    seen.page.get_by_role("button", name="Report").click()
    seen.until("window.folded", 0)
    seen.until("document.getElementById('why').open", False)
    allowed.close()


def test_an_answer_to_other_limits_is_named_while_the_service_is_away(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any], api: httpx.Client
) -> None:
    seen = watch(member, f"/jobs/{predicted['id']}")
    seen.until(MARKED, recommendation(api, predicted)["recommended"]["id"])
    limit = latency_of(api, predicted, quickest=False)
    seen.page.locator("#latency-limit").fill(f"{limit:g}")
    expect(seen.page.locator("#answer-sentence")).to_contain_text("Within")
    seen.page.route("**/recommendation?*", lambda route: route.abort())
    seen.page.locator("#latency-limit").fill("1000000")
    expect(seen.page.locator("#stale")).to_have_text(f"The service cannot be reached; this answer is for {limit:g} ms.")
    seen.page.unroute("**/recommendation?*")
    expect(seen.page.locator("#stale")).to_be_hidden()
    seen.complaints.clear()


RISES = """(() => {
  const {y} = document.getElementById('chart').data?.find((trace) => trace.uid === 'frontier-line') ?? {y: []};
  return y.length > 1 && y.every((value, at) => at === 0 || value < y[at - 1]);
})()"""


def test_the_line_of_the_frontier_joins_only_what_no_faster_model_beats(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any]
) -> None:
    seen = watch(member, f"/jobs/{predicted['id']}")
    seen.until(RISES, True)
    line = seen.page.evaluate("document.getElementById('chart').data.find(({uid}) => uid === 'frontier-line').x.length")
    assert 1 < line < seen.points()["frontier"]
