"""The pages of trainings in a real browser: list, curves, supernet, buttons, and training from a job's page."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from packages import DESCRIPTIONS, lively
from playwright.sync_api import BrowserContext, Route, expect
from watched_page import Watch
from worked_trainings import ARCHITECTURE, Pool, metric

from edgefront.client.client import Client
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer, CharacterTokenizer
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.services.trainings.claims import FinishedRun, RunReport
from edgefront.core.services.trainings.folder import training_folder
from edgefront.core.store.tables import Training
from edgefront.core.training.evaluation.package import write_package
from edgefront.embedded.service import EmbeddedService

OWN_SERVICE = True

FRONTIER_POINTS = (
    "(({customdata: ids, y}) => Array.from(ids, (id, at) => [id, y[at]]))"
    "(document.getElementById('chart').data.find(({uid}) => uid === 'frontier'))"
)
STATE = "document.getElementById('training-state').textContent"
LIVE = "document.getElementById('live').textContent"
LENGTHS = "Object.fromEntries((document.getElementById('curves').data ?? []).map((t) => [t.uid, t.x.length]))"
ATTACK = '<img src=x onerror="window.attacked=1"><script>window.attacked=1</script>'


def test_curves_grow_without_reload_and_the_result_is_listed(watch: Watch, member: BrowserContext, pool: Pool) -> None:
    training = pool.submit(name="a small one")
    seen = watch(member, f"/trainings/{training}")
    seen.until(STATE, "queued")
    seen.until(LIVE, "live")
    seen.page.evaluate("window.neverReloaded = true")
    expect(seen.page.locator("#curves")).to_contain_text("No data yet. It waits for a worker.")
    claim = pool.claim()
    validated = {"valid_loss": 3.5, "valid_perplexity": 33.1, "valid_bpc": 1.4}
    metrics = [metric(10), metric(20), metric(30, 3.0, **validated)]
    pool.report(claim, step=30, metrics=metrics, seconds_left=135.0)
    seen.until(f"JSON.stringify({LENGTHS})", json.dumps({"lr": 3, "loss": 3, "valid_loss": 1}, separators=(",", ":")))
    seen.until("document.getElementById('loss').textContent", "3.000")
    figures = {"valid-loss": "3.500", "tokens-per-s": "2,048", "time-left": "2 min"}
    quality = {"quality-name": "Perplexity, last validation", "quality": "33.1"}
    for name, text in {**figures, **quality}.items():
        expect(seen.page.locator(f"#{name}")).to_have_text(text)
    seen.page.locator("#axis").select_option("tokens")
    seen.until("document.getElementById('curves').layout.xaxis.title.text", "tokens")
    seen.until("document.getElementById('curves').data[1].x", [10240, 20480, 30720])
    # A crash takes back what came after the checkpoint.
    pool.report(claim, step=20, metrics=[metric(10), metric(20, 2.5)], whole=True, checkpoint=20)
    seen.until(f"({LENGTHS}).loss", 2)
    seen.until("document.getElementById('curves').data[1].y[1]", 2.5)
    folder = training_folder(pool.settings, training)
    tokens = CharacterTokenizer("".join(map(chr, range(0x4E00, 0x4E00 + 4096))))
    write_package(folder / "result", lively(ARCHITECTURE), tokens, {"name": "a small one"})
    (folder / "log.txt").write_text(f"step 300 of 300\n{ATTACK}\n")
    pool.report(claim, step=300, metrics=[metric(300, 2.0)])
    pool.start(claim)
    expect(seen.page.locator("#model-files")).to_be_hidden()
    pool.finish(claim, 21.75)
    seen.until(STATE, "done")
    seen.until("document.getElementById('quality').textContent", "21.8")
    seen.eventually(lambda: seen.cells("#scores tbody tr"), [["python", "test", "3.080", "21.750"]])
    seen.until("document.getElementById('log').textContent.endsWith('</script>')")
    with seen.page.expect_download() as download:
        seen.page.get_by_role("link", name="model.safetensors").click()
    assert download.value.path().read_bytes() == (folder / "result" / "model.safetensors").read_bytes()
    with seen.page.expect_download() as download:
        seen.page.get_by_role("link", name="All of them as one archive").click()
    assert download.value.suggested_filename == f"{training}.tar"
    with tarfile.open(download.value.path()) as archive:
        kept = {file.name for file in (folder / "result").iterdir()}
        assert {Path(name).name for name in archive.getnames()} == kept
    links = seen.page.locator("#formats a")
    expect(links).to_have_text(
        [
            "GGUF (llama.cpp)",
            "GGUF q8_0",
            "GGUF q6_k",
            "GGUF q5_k_m",
            "GGUF q4_k_m",
            "GGUF iq4_nl",
            "GGUF q4_0",
            "transformers (tar)",
            "ONNX",
            "ONNX prefill",
            "ONNX decode",
            "ONNX generate",
        ]
    )
    with seen.page.expect_download() as download:
        seen.page.get_by_role("link", name="GGUF q8_0").click()
    assert download.value.suggested_filename.endswith("-trained-q8_0.gguf")
    assert download.value.path().read_bytes()[:4] == b"GGUF"
    seen.page.get_by_text("How to run it").click()
    expect(seen.page.locator("#run-archive")).to_contain_text(f"tar -xf {training}.tar\nedgefront generate {training} ")
    expect(seen.page.locator("#run-llama")).to_be_visible()
    expect(seen.page.locator("#run-transformers")).to_contain_text("AutoModelForCausalLM")
    seen.until(LIVE, "")  # nothing can happen any more
    assert seen.page.evaluate("[window.neverReloaded, window.attacked]") == [True, None]


def test_pause_resume_cancel_and_delete_ask_before_they_destroy(
    watch: Watch, member: BrowserContext, pool: Pool, api: httpx.Client
) -> None:
    training = pool.submit(name="to be steered")
    seen = watch(member, f"/trainings/{training}")
    seen.until(LIVE, "live")
    press = seen.page.get_by_role("button", name="Pause")
    press.click()
    seen.until(STATE, "paused")
    seen.page.get_by_role("button", name="Resume").click()
    seen.until(STATE, "queued")
    claim = pool.claim()
    seen.until(STATE, "starting")  # a change made elsewhere
    press.click()
    seen.until(STATE, "pausing")
    seen.page.get_by_role("button", name="Resume").click()
    seen.until(STATE, "starting")
    seen.page.get_by_role("button", name="Cancel…").click()
    seen.page.keyboard.press("Escape")  # thought better of it
    expect(seen.page.locator("#confirm")).not_to_be_visible()
    assert api.get(f"/v1/trainings/{training}").json()["wanted"] == "run"
    seen.page.get_by_role("button", name="Cancel…").click()
    seen.page.get_by_role("button", name="Cancel the training").click()
    seen.until(STATE, "cancelling")
    with pool.database.write() as session:
        now = pool.database.now(session)
        training_claims.finish(session, training, claim.fence, RunReport(), FinishedRun("stopped"), now)
    seen.until(STATE, "cancelled")
    seen.page.get_by_role("button", name="Delete…").click()
    seen.page.get_by_role("button", name="Delete the training").click()
    seen.page.wait_for_url(f"{seen.origin}/trainings")
    assert api.get(f"/v1/trainings/{training}").status_code == 404
    seen.page.goto(f"/trainings/{training}")
    seen.page.get_by_text("This training does not exist").wait_for()
    seen.forgive(404)


def test_a_supernet_shows_what_each_layer_chooses(watch: Watch, member: BrowserContext, pool: Pool) -> None:
    training = pool.supernet()
    claim = pool.claim()
    extra = {"phase": "tuning", "temperature": 0.5, "pattern": "sfs"}
    rows = [[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.6, 0.3, 0.1]]
    metrics = [metric(step, extra={**extra, "seed": step // 100, "probabilities": rows}) for step in (100, 110, 200)]
    pool.report(claim, step=200, metrics=metrics)
    seen = watch(member, f"/trainings/{training}")
    seen.until("document.getElementById('layer-bars').data?.map((t) => t.y.length).join()", "3,3,3")
    seen.until("document.getElementById('layer-bars').data[1].y", [0.15, 0.7, 0.3])
    seen.until("document.getElementById('layer-steps').data[0].z", [[0.8], [0.1], [0.6]])
    seen.page.get_by_label("Seed").select_option("1")
    seen.until("document.getElementById('layer-steps').data[0].x.join()", "100,110")
    seen.page.get_by_text("Numbers").click()
    second = "#probabilities tbody tr:nth-child(2)"
    seen.eventually(lambda: seen.cells(second), [["2", "0.100", "0.700", "0.200", "f feed-forward"]])
    expect(seen.page.locator("#layers-note")).to_contain_text("most probable blocks sfs")
    expect(seen.page.locator("#model")).not_to_be_visible()  # a supernet is no model with a latency
    pool.report(claim, step=210, metrics=[metric(210, extra={**extra, "seed": 2, "probabilities": rows[::-1]})])
    seen.page.get_by_label("Seed").select_option("2")
    seen.until("document.getElementById('layer-bars').data[0].y.join()", "0.6,0.1,0.8")


def test_the_list_is_live_narrowed_and_shows_text_as_text(
    watch: Watch, member: BrowserContext, pool: Pool, api: httpx.Client
) -> None:
    running, failed = pool.submit(name="a training to find"), pool.submit(name="another", seed=1)
    claim = pool.claim()
    with pool.database.write() as session:  # the API takes no such names: this is the second wall
        row = session.get_one(Training, failed)
        row.name, row.state, row.reason, row.dataset, row.owner = ATTACK, "failed", ATTACK, ATTACK, ATTACK
    seen = watch(member, "/trainings")
    shown = seen.page.locator(f"tr[data-id='{running}']")
    shown.wait_for()
    expect(seen.page.locator("#trainings tbody tr").first).to_have_attribute("data-id", failed)  # newest first
    expect(seen.page.locator(f"tr[data-id='{failed}']")).to_contain_text(ATTACK)
    validated = {"valid_loss": 3.4, "valid_perplexity": 30.0}
    pool.report(claim, step=150, metrics=[metric(100, **validated), metric(150, 3.25)], seconds_left=75.0)
    shown.get_by_text("150 of 300 steps").wait_for()
    figures = ["150 of 300 steps", "3.250", "30.0 last validation", "2,048", "1 min", "python", "modern"]
    row = ["1 layer × 32", "training", *figures, "", ""]  # whenever it began, and whoever owns it
    expect(shown.locator("td")).to_have_count(len(row))
    expect(shown.locator("td")).to_contain_text(row, use_inner_text=True)
    seen.page.get_by_label("Show").select_option("failed")
    seen.until("document.querySelectorAll('#trainings tbody tr').length", 1)
    seen.page.get_by_role("link", name=ATTACK).click()
    seen.until("document.getElementById('notice').textContent.includes('onerror')")
    seen.page.set_viewport_size({"width": 390, "height": 844})
    seen.page.emulate_media(color_scheme="dark")
    seen.until("document.documentElement.scrollWidth", 390)
    digest = api.get(f"/v1/trainings/{running}").json()["digest"]
    seen.page.goto(f"/trainings?digest={digest}")
    seen.page.get_by_text(f"Only trainings of the architecture {digest[:10]}").wait_for()
    shown.wait_for()
    seen.until("document.documentElement.scrollWidth", 390)
    assert seen.page.evaluate("window.attacked") is None
    assert seen.page.locator("main img").count() == 0


def test_a_selected_candidate_is_trained_and_its_perplexity_is_shown(
    watch: Watch, member: BrowserContext, finished: dict[str, Any], pool: Pool, api: httpx.Client
) -> None:
    for waiting in api.get("/v1/trainings", params={"state": "queued"}).json()["items"]:
        api.delete(f"/v1/trainings/{waiting['id']}").raise_for_status()
    seen = watch(member, f"/jobs/{finished['id']}")
    seen.until("document.querySelectorAll('#candidates tbody tr').length", finished["targets"][0]["frontier_size"])
    chosen = seen.page.locator("#candidates tbody tr").nth(1).get_attribute("data-id")
    row = seen.page.locator(f"#candidates tr[data-id='{chosen}']")
    row.get_by_role("button", name="show in the chart").click()
    expect(seen.page.locator("#candidates").get_by_role("columnheader", name="Trained perplexity")).not_to_be_visible()
    seen.page.keyboard.press("Tab")
    seen.page.keyboard.press("Enter")  # the row's own button comes next
    dialog = seen.page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Train", exact=True)).to_be_enabled()
    expect(dialog.get_by_label("Data set")).to_have_value("python")
    expect(dialog.get_by_label("Recipe")).to_have_value("modern")
    expect(dialog.get_by_label("Recipe")).not_to_contain_text("masked")
    recipes = dialog.get_by_label("Recipe").locator("option").all_text_contents()
    # Those for such models, the shortest first.
    assert recipes[:5] == ["modern", "quick", "lts-lm1b", "lts-wt103", "lts-pile"]
    assert all(recipe.endswith("(of other models)") for recipe in recipes[5:])
    dialog.get_by_label("Recipe").select_option("lts-pile")  # longer than the candidate has positions
    dialog.get_by_role("button", name="Train", exact=True).click()
    seen.page.get_by_role("alert").filter(has_text="Not trained: overrides.segment").wait_for()
    seen.forgive(422)
    dialog.get_by_label("Recipe").select_option("quick")
    dialog.get_by_label("Steps").fill("25")
    dialog.get_by_role("button", name="Train", exact=True).click()
    bar = seen.page.locator("#chosen-trainings")
    bar.get_by_text("1 training: python, quick (queued)").wait_for()
    (made,) = api.get("/v1/trainings", params={"job": finished["id"]}).json()["items"]
    assert (made["candidate_id"], made["budget"]["steps"]) == (chosen, 25)
    waiting = row.get_by_role("link", name="queued, training queued")
    expect(waiting).to_have_attribute("href", f"/trainings/{made['id']}")
    claim = pool.claim()
    pool.report(claim, step=25, metrics=[metric(25)])
    pool.finish(claim, 43.21)
    link = row.get_by_role(
        "link", name="43.2, perplexity on the test split of python, trained with recipe quick for 25 steps"
    )
    link.wait_for()
    expect(bar).to_have_text("1 training: python, quick (perplexity 43.2)")
    asked: list[Route] = []
    seen.page.route("**/frontier?*by=perplexity", lambda route: asked.append(route), times=1)
    seen.page.get_by_label("Quality", exact=True).select_option("trained")
    expect(seen.page.locator("#chart")).to_have_text("Loading the perplexities of the trained models…")
    assert seen.page.evaluate("document.getElementById('chart').data") is None  # nothing old under the new caption
    expect(seen.page.locator("#legend")).to_be_empty()
    seen.eventually(lambda: len(asked), 1)
    asked[0].continue_()
    seen.page.get_by_text("Only trained models: perplexity on the test split of python").wait_for()
    seen.until(FRONTIER_POINTS, [[made["candidate_id"], 43.21]])
    seen.until("document.getElementById('chart').layout.yaxis.title.text", "perplexity when trained")
    seen.page.get_by_label("Quality", exact=True).select_option("proxy")
    seen.until(f"{FRONTIER_POINTS}.length", finished["targets"][0]["frontier_size"])
    link.click()
    seen.page.wait_for_url("**/trainings/*")
    seen.until(STATE, "done")
    candidate = next(
        point
        for point in api.get(f"/v1/jobs/{finished['id']}/frontier").json()["points"]
        if point["id"] == made["candidate_id"]
    )
    expect(seen.page.locator("#quality")).to_have_text("43.2")
    figures = {"latency": ("ms", candidate["latency_ms"]), "memory": ("MB", candidate["memory_bytes"] / 1e6)}
    for name, (unit, expected) in figures.items():
        figure = seen.page.locator(f"#{name}")
        expect(figure).to_have_text(re.compile(f" {unit}$"))
        assert float(figure.inner_text().split()[0].replace(",", "")) == pytest.approx(expected, rel=0.01)
    expect(seen.page.locator("#latency")).to_contain_text(re.compile(r" ± | to "))
    seen.page.get_by_role("link", name="job", exact=True).click()
    seen.page.wait_for_url(f"{seen.origin}/jobs/{finished['id']}#target=*")
    api.delete(f"/v1/trainings/{made['id']}").raise_for_status()
    seen.page.reload()
    cell = seen.page.locator(f"#candidates tr[data-id='{made['candidate_id']}'] td.trained")
    cell.get_by_text("43.2", exact=True).wait_for()  # what it scored stays with the architecture
    assert cell.get_by_role("link").count() == 0


def test_an_imported_model_has_files_and_no_run(
    watch: Watch, member: BrowserContext, service: EmbeddedService, tmp_path: Path
) -> None:
    write_package(tmp_path / "mine", lively(DESCRIPTIONS["gpt2"]), ByteTokenizer(), {"name": "mine", "licence": "mit"})
    with Client(home=service.home) as client:
        imported = client.trainings.import_model(tmp_path / "mine")
    seen = watch(member, "/trainings")
    shown = seen.page.locator(f"tr[data-id='{imported.id}']")
    shown.wait_for()
    row = ["mine", "done", "–", "–", "–", "–", "–", "–", "imported", "", ""]
    expect(shown.locator("td")).to_contain_text(row, use_inner_text=True)
    assert shown.locator("progress").count() == 0
    shown.get_by_role("link", name="mine").click()
    facts = seen.page.locator("#training-facts")
    expect(facts).to_contain_text("imported")
    expect(facts).to_contain_text("licence mit")
    seen.page.get_by_role("link", name="model.safetensors").wait_for()
    seen.page.get_by_role("link", name="GGUF (llama.cpp)").wait_for()
    for name in ("progress-card", "curves-card", "log-card", "recipe-card", "pause", "resume", "cancel"):
        expect(seen.page.locator(f"#{name}")).not_to_be_visible()
    seen.page.set_viewport_size({"width": 375, "height": 800})
    seen.until("document.documentElement.scrollWidth", 375)
