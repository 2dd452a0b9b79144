"""The page that starts a search: what it would take or be refused for, and the job."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import BrowserContext, Page, expect
from simulated_agent import RemoteAgent, facts
from watched_page import Watch

from edgefront.api.docs.examples import example
from edgefront.core.schemas.agent import RuntimeFacts
from edgefront.embedded.service import EmbeddedService

OWN_SERVICE = True


def start(page: Page, api: httpx.Client) -> dict[str, Any]:
    """Starts the search of the page as soon as that is offered; returns its job."""
    submit = page.get_by_role("button", name="Start the search")
    expect(submit).to_be_enabled()
    submit.click()
    page.wait_for_url(re.compile("/jobs/job_"))
    return dict(api.get(f"/v1/jobs/{page.url.rpartition('/')[2]}").raise_for_status().json())


def test_a_search_is_estimated_then_submitted(
    watch: Watch, member: BrowserContext, agent: RemoteAgent, predicted: dict[str, Any], api: httpx.Client
) -> None:
    before = len(api.get("/v1/jobs").json()["items"])
    seen = watch(member, "/")
    seen.page.get_by_role("link", name="New search").click()
    expect(seen.page.locator("#device option")).to_have_text([agent.name, "any bench-board (1 device)"])
    expect(seen.page.locator("#runtime option")).to_have_text(["onnxruntime on cpu", "pytorch on cpu"])
    seen.page.get_by_label("Search space").select_option("lts-gpt2")
    launches = seen.page.locator("#estimate-launches")
    expect(launches).to_have_text(re.compile(r"^\d+ to \d+$"))
    first = launches.text_content()
    seen.page.get_by_label("Peak memory at most (MB)").fill("400")
    seen.page.locator("#more > summary").click()
    seen.page.get_by_label("Candidates at most").fill("7")
    seen.page.get_by_label("Name").fill("from the page")
    seen.page.get_by_label("When it is busy").select_option("wait")
    expect(launches).not_to_have_text(str(first))
    expect(seen.page.locator("#estimate-says")).to_contain_text("The time is")
    stock = r"^The baseline is predicted at [\d.]+ ms \([\d.]+ to [\d.]+\) and [\d.]+ MB with \d+ layers?, at "
    expect(seen.page.locator("#limits-says")).to_have_text(re.compile(stock))
    expect(seen.page.locator("#estimate-time")).not_to_have_text("")
    assert len(api.get("/v1/jobs").json()["items"]) == before  # nothing is stored
    job = start(seen.page, api)
    expect(seen.page.locator("#job-name")).to_have_text("from the page")
    assert job["request"]["goal"] == "best_within_limits"
    assert job["request"]["space"]["narrow"] == {"div": [1, 2, 4], "d_embed": ["d_model", 128, 256, 512]}
    assert job["targets"][0]["limits"] == {"latency_ms": None, "memory_mb": 400}
    assert job["request"]["budget"]["candidates"] == 7
    assert job["targets"][0]["protocol"]["when_busy"] == "wait"
    assert len(api.get("/v1/jobs").json()["items"]) == before + 1
    seen.page.close()  # it reads the job still
    api.delete(f"/v1/jobs/{job['id']}").raise_for_status()


def test_what_would_be_refused_is_said_at_its_field(
    watch: Watch, member: BrowserContext, predicted: dict[str, Any]
) -> None:
    seen = watch(member, "/new")
    submit = seen.page.get_by_role("button", name="Start the search")
    expect(submit).to_be_enabled()
    seen.page.get_by_label("Search space").select_option("lts-gpt2")
    memory = seen.page.get_by_label("Peak memory at most (MB)")
    memory.fill("0.5")
    expect(seen.page.locator("#estimate-says")).to_contain_text("Peak memory at most (MB): no architecture of lts-gpt2")
    expect(seen.page.locator("#memory-problem")).to_contain_text("no architecture of lts-gpt2 was found")
    expect(memory).to_have_attribute("aria-invalid", "true")
    expect(submit).to_be_disabled()
    memory.fill("-3")
    expect(seen.page.locator("#memory-problem")).to_have_text("Must be a number above 0, or empty.")
    memory.fill("")
    expect(submit).to_be_enabled()
    seen.page.get_by_label("Latency at most (ms)").fill("0.0001")
    expect(seen.page.locator("#latency-problem")).to_have_text(
        re.compile(r"^0\.0001 is below every model of lts-gpt2: .* \(allowed: at least [\d.]+ ms\)$")
    )
    seen.page.get_by_label("Latency at most (ms)").fill("")
    expect(submit).to_be_enabled()
    expect(seen.page.locator("#memory-problem")).to_have_text("")
    seen.page.locator("#more > summary").click()
    seen.page.get_by_label("Threads").fill("99")
    expect(seen.page.locator("#threads-problem")).not_to_have_text("")
    expect(submit).to_be_disabled()


def test_a_generation_is_submitted_with_its_lengths_and_limits(
    watch: Watch, member: BrowserContext, agent: RemoteAgent, api: httpx.Client
) -> None:
    seen = watch(member, "/new")
    seen.page.locator("#more > summary").click()
    expect(seen.page.get_by_label("New tokens")).not_to_be_visible()
    seen.page.get_by_label("One pass").select_option("generate")
    seen.page.get_by_label("Tokens of the prompt").fill("96")
    seen.page.get_by_label("New tokens").fill("1")
    expect(seen.page.locator("#new-tokens-problem")).not_to_have_text("")
    seen.page.get_by_label("New tokens").fill("32")
    seen.page.get_by_label("Context (tokens)").fill("48")
    first, each = (seen.page.get_by_label(name) for name in ("First token at most (ms)", "Further token at most (ms)"))
    first.fill("900")
    each.fill("700")
    seen.page.get_by_label("Latency is").select_option("token")
    expect(each).not_to_be_visible()  # it is the latency now
    seen.page.get_by_label("Latency at most (ms)").fill("800")
    job = start(seen.page, api)
    (target,) = job["targets"]
    protocol = {"mode": "generate", "sequence_length": 96, "new_tokens": 32, "memory_length": 48, "latency": "token"}
    assert protocol.items() <= target["protocol"].items()
    assert target["limits"] == {"latency_ms": 800, "memory_mb": None, "first_token_ms": 900}
    seen.page.get_by_role("link", name="Duplicate…").click()
    expect(seen.page.get_by_label("Tokens of the prompt")).to_have_value("96")
    expect(seen.page.get_by_label("Context (tokens)")).to_have_value("48")
    expect(seen.page.get_by_label("Latency is")).to_have_value("token")
    expect(first).to_have_value("900")
    seen.page.get_by_label("One pass").select_option("forward")  # what only a generation has is not taken over
    copy = start(seen.page, api)
    copied = copy["targets"][0]
    assert (copied["protocol"]["mode"], copied["protocol"]["sequence_length"]) == ("forward", 192)
    assert copied["limits"] == {"latency_ms": 800, "memory_mb": None}
    seen.page.close()  # it reads the job still
    for made in (job, copy):
        api.delete(f"/v1/jobs/{made['id']}").raise_for_status()


def test_the_form_offers_what_the_models_of_a_space_can_do(
    watch: Watch, member: BrowserContext, agent: RemoteAgent
) -> None:
    page = watch(member, "/new").page
    expect(page.locator("#submit")).to_be_enabled()
    expect(page.get_by_label("Search space")).to_have_value("llama")
    page.locator("#more > summary").click()
    tokens, mode, each = (page.locator(f"#{name}") for name in ("train-tokens", "mode", "token"))
    expect(tokens).to_have_attribute("placeholder", "30B")
    expect(page.locator("#latency-says")).to_have_text("One pass over 192 tokens.")
    each.fill("40")  # it is measured in a generation
    expect(mode).to_have_value("generate")
    expect(page.locator("#latency-says")).to_have_text("Of the whole answer: 64 tokens after a prompt of 192.")
    mode.select_option("prefill")
    expect(each).to_have_value("")
    tokens.fill("10B")
    for space, modes in (("srupp", 4), ("bert", 1)):
        page.get_by_label("Search space").select_option(space)
        expect(tokens).to_be_hidden()
        expect(page.locator("#mode option:enabled")).to_have_count(modes)
    expect(mode).to_have_value("forward")
    expect(each).to_be_hidden()
    expect(page.locator("#train-tokens-problem")).to_have_text("")
    expect(page.locator("#submit")).to_be_enabled()


def test_a_search_starts_from_my_model(
    watch: Watch, member: BrowserContext, agent: RemoteAgent, api: httpx.Client, tmp_path: Path
) -> None:
    seen = watch(member, "/new")
    submit = seen.page.get_by_role("button", name="Start the search")
    expect(submit).to_be_enabled()
    seen.page.get_by_label("Begin with").select_option("model")
    expect(seen.page.locator("#estimate-says")).to_have_text("Choose the config.json of your model.")
    expect(submit).to_be_disabled()
    text, problem = seen.page.get_by_label("or paste it"), seen.page.locator("#model-problem")
    text.fill("{not json")
    expect(problem).to_have_text(re.compile("^This is not JSON: "))
    text.fill(json.dumps({**example("huggingface_config"), "hidden_act": "xielu", "vocab_size": None}))
    expect(problem).to_contain_text("vocab_size")
    expect(problem).to_contain_text("hidden_act")
    expect(text).to_have_attribute("aria-invalid", "true")
    seen.forgive(422)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(example("huggingface_config")), encoding="utf-8")
    seen.page.get_by_label("Its config.json").set_input_files(config)
    expect(seen.page.locator("#model-says")).to_have_text(
        re.compile(r"^Read as a config\.json: 2 layers × 576, [\d.]+ M")
    )
    expect(problem).to_have_text("")
    seen.page.get_by_label("Latency at most (ms)").fill("60000")
    expect(seen.page.locator("#estimate-says")).to_contain_text("measure my model")
    job = start(seen.page, api)
    imported = api.post("/v1/models/import", json=example("huggingface_config")).json()
    assert (job["request"]["space"]["name"], job["request"]["space"]["model"]) == ("llama", imported["architecture"])
    assert job["request"]["goal"] == "best_within_limits"
    seen.page.get_by_role("link", name="Duplicate…").click()
    expect(seen.page.locator("#model-says")).to_have_text("The model of that job: 2 layers × 576.")
    expect(submit).to_be_enabled()
    seen.page.get_by_label("Begin with").select_option("space")
    expect(seen.page.get_by_label("Search space")).to_be_visible()
    expect(submit).to_be_enabled()
    seen.page.get_by_label("Begin with").select_option("model")
    text.fill(json.dumps(imported["architecture"]))  # a description is read too
    expect(seen.page.locator("#model-says")).to_have_text(re.compile(r"^Read as a description: 2 layers × 576"))
    expect(submit).to_be_enabled()
    api.delete(f"/v1/jobs/{job['id']}").raise_for_status()


def test_devices_are_offered_with_their_state(
    watch: Watch, member: BrowserContext, service: EmbeddedService, agent: RemoteAgent, api: httpx.Client
) -> None:
    other = RemoteAgent(service.url, service.key, name="bench-draining")
    other.measure(1, wait_s=0)  # now it is online
    api.post(f"/v1/devices/{other.device_id}/drain").raise_for_status()
    seen = watch(member, "/new")
    device = seen.page.get_by_label("Device")
    expect(seen.page.locator("#runtime-says")).to_have_text("Version 1; computes in float32, int8.")
    draining = device.locator("option", has_text=re.compile(r"\(.*draining\)$"))
    expect(draining).to_have_count(1)
    device.select_option(draining.get_attribute("value"))
    expect(seen.page.locator("#device-says")).to_contain_text("draining: it takes no new work")
    device.select_option("any bench-board (2 devices)")
    expect(seen.page.locator("#device-says")).to_have_text(re.compile(r"^[01] devices? of 2 ready; nothing at work\.$"))
    api.post(f"/v1/devices/{other.device_id}/revoke").raise_for_status()
    other.close()


def test_a_space_is_narrowed_gene_by_gene(
    watch: Watch, member: BrowserContext, agent: RemoteAgent, api: httpx.Client
) -> None:
    seen = watch(member, "/new")
    submit = seen.page.get_by_role("button", name="Start the search")
    expect(submit).to_be_enabled()
    seen.page.locator("#more > summary").click()
    seen.page.get_by_label("Search space").select_option("lts-gpt2")
    seen.page.locator("#narrowing-title").click()
    depth, width = (seen.page.get_by_label(name, exact=True) for name in ("n_layer", "d_model"))
    depth.fill("2..3")
    width.fill("128,77")
    problem = seen.page.locator("#gene-d_model-problem")
    expect(problem).to_contain_text("cannot be 77 in this space")
    expect(width).to_have_attribute("aria-invalid", "true")
    expect(submit).to_be_disabled()
    width.fill("128..256:64")
    expect(problem).to_have_text("")
    expect(seen.page.locator("#narrowing-title")).to_have_text("Narrow its genes (2)")
    job = start(seen.page, api)
    narrow = {"n_layer": {"min": 2, "max": 3}, "d_model": {"min": 128, "max": 256, "step": 64}}
    assert job["request"]["space"]["narrow"] == narrow
    seen.page.get_by_role("link", name="Duplicate…").click()
    expect(depth).to_have_value("2..3")
    expect(width).to_have_value("128..256:64")
    seen.page.get_by_label("Search space").select_option("llama")  # there it means nothing
    expect(depth).to_have_value("")
    api.delete(f"/v1/jobs/{job['id']}").raise_for_status()


def test_the_cache_of_llama_cpp_is_chosen_where_it_is_measured(
    watch: Watch, member: BrowserContext, agent: RemoteAgent, service: EmbeddedService, api: httpx.Client
) -> None:
    (first, *_) = facts().runtimes
    runtime = {**first.model_dump(), "runtime": "llamacpp", "kv_caches": ("f32", "f16", "q8_0", "q4_0")}
    with_llama_cpp = facts().model_copy(update={"runtimes": (first, RuntimeFacts.model_validate(runtime))})
    other = RemoteAgent(
        service.url, service.key, name="bench-llama", device_class="llama-board", device_facts=with_llama_cpp
    )
    page = watch(member, "/new").page
    page.locator("#more > summary").click()
    cache = page.get_by_label("Key/value cache")
    page.get_by_label("Device").select_option("any llama-board (1 device)")
    expect(cache).to_be_hidden()
    page.get_by_label("Runtime").select_option("llamacpp on cpu")
    expect(cache).to_have_value("f16")
    cache.select_option("q8_0")
    page.get_by_label("Space").select_option("llama")
    job = start(page, api)
    expect(page.locator("#target-facts")).to_contain_text("q8_0 key/value cache")
    assert job["targets"][0]["protocol"]["kv_cache"] == "q8_0"
    again = watch(member, f"/new?from={job['id']}").page
    expect(again.get_by_label("Key/value cache")).to_have_value("q8_0")
    page.close()  # it reads the job still
    again.close()
    api.delete(f"/v1/jobs/{job['id']}").raise_for_status()
    api.post(f"/v1/devices/{other.device_id}/revoke").raise_for_status()
    other.close()


MARKED = "document.getElementById('chart').data?.find((trace) => trace.uid === 'recommended')?.customdata[0] ?? null"


def test_the_best_published_model_from_the_page_alone(
    watch: Watch, member: BrowserContext, agent: RemoteAgent, api: httpx.Client
) -> None:
    seen = watch(member, "/new")
    page = seen.page
    expect(page.locator("#embedding-free")).to_be_visible()
    page.locator("#more > summary").click()
    page.get_by_label("Begin with").select_option("published")
    expect(page.locator("#embedding-free")).to_be_hidden()
    expect(page.locator("#mode")).to_have_value("generate")
    expect(page.locator("#runtimes")).to_have_value("onnxruntime")
    score = page.get_by_label("Score that stands for quality")
    score.select_option("obsscaling_base:HellaSwag")
    texts = score.locator("option").all_text_contents()
    assert len(set(texts)) == len(texts)  # a name of several tables has its table
    page.get_by_label("Peak memory at most (MB)").fill("6000")
    page.get_by_label("Licence").fill("gpl-3.0")
    expect(page.locator("#licence-problem")).to_contain_text("none of the")
    page.get_by_label("Licence").fill("mit")
    page.get_by_label("Tokens of the prompt").fill("16")
    page.get_by_label("New tokens").fill("4")
    page.get_by_label("Formats of weights").fill("q8_0")
    expect(page.locator("#formats-problem")).to_contain_text("cannot use weights in q8_0")
    page.get_by_label("Formats of weights").fill("f32, int8")
    expect(page.locator("#estimate-says")).to_contain_text("On 2 combinations of runtime and format.")
    job = start(page, api)
    assert job["request"]["space"]["published"]["licence"] == "mit"
    assert sorted(target["protocol"]["weights"] for target in job["targets"]) == ["full", "int8"]
    agent.finish(api, job["id"])
    view = api.get(f"/v1/jobs/{job['id']}/choices").raise_for_status().json()
    best = view["recommended"]
    expect(page.locator("#choices-title")).to_have_text(f"Recommended: {best['model']} in {best['weights']}")
    expect(page.locator("#choices-sentence")).to_have_text(view["sentence"])
    expect(page.locator("#choices-table tbody tr.recommended")).to_contain_text(best["model"])
    expect(page.locator("#choices-table tbody tr")).to_have_count(
        sum(target["candidates"] for target in api.get(f"/v1/jobs/{job['id']}").json()["targets"])
    )
    expect(page.locator("#candidates")).to_be_hidden()  # one table has all
    expect(page.locator("#chart .ytitle")).to_have_text("HellaSwag")
    expect(page.locator("#choices-commands")).to_contain_text(f"edgefront model get {best['model']}")
    expect(page.locator("#choices-unscored-title")).to_contain_text("Without this score")
    command = page.locator("#choices-commands").text_content()
    expect(page.locator("#choices-get").get_by_role("button", name="Copy")).to_be_visible()
    for target in job["targets"]:  # marked where it was measured, and nowhere else
        page.locator(f"#tab-{target['id']}").click()
        seen.until(MARKED, best["candidate"]["id"] if target["id"] == best["target_id"] else None)
    page.locator("#choices-table tr.recommended").get_by_role("link").click()
    expect(page.locator("h1")).to_have_text(best["model"])
    expect(page.locator("#get-command")).to_have_text(command or "")
    expect(page.locator("#figures")).to_contain_text(f"HellaSwag{best['score']}Licence{best['licence']}")
    expect(page.locator("#downloads, #trainings, #no-trainings, #lineage").locator("visible=true")).to_have_count(0)
    copy = watch(member, f"/new?from={job['id']}")
    expect(copy.page.locator("#begin")).to_have_value("published")
    expect(copy.page.locator("#score")).to_have_value("obsscaling_base:HellaSwag")
    expect(copy.page.locator("#licence")).to_have_value("mit")
    for each in (copy, seen):
        each.page.close()
    api.delete(f"/v1/jobs/{job['id']}").raise_for_status()
