"""The fleet by its pages, as a person works with it: add a device, watch it, drain it, revoke it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, expect
from simulated_agent import RemoteAgent
from watched_page import Submit, Watch, inspect

from edgefront.agents.main import REVOKED
from edgefront.core.schemas.agent import LeaseRequest, LeaseResponse, ReleaseRequest, StartRequest

OWN_SERVICE = True

START_MS = 300_000
"""An agent tries each of its runtimes first, which takes long where other tests run beside it."""


@pytest.fixture
def start_shown_command(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts what the page shows, in a shell, as on the device; a process that is left at the end is killed."""
    begun: list[subprocess.Popen[str]] = []

    def start(command: str) -> subprocess.Popen[str]:
        own = command.replace("edgefront agent", f"{sys.executable} -m edgefront agent --data-dir {tmp_path / 'agent'}")
        with (tmp_path / "agent.log").open("a") as log:
            made = subprocess.Popen(["sh", "-c", own], stderr=log, text=True, start_new_session=True)
        begun.append(made)
        return made

    yield start
    for process in begun:  # the shell and what it started
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    print((tmp_path / "agent.log").read_text())


def figures(page: Page) -> dict[str, str]:
    names, values = page.locator("#device .figures dt"), page.locator("#device .figures dd")
    return dict(zip(names.all_text_contents(), values.all_text_contents(), strict=True))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_device_is_added_watched_drained_and_revoked(
    watch: Watch, member: BrowserContext, start_shown_command: Callable[[str], subprocess.Popen[str]]
) -> None:
    seen = watch(member, "/devices")
    page = seen.page
    page.get_by_role("button", name="Add a device").click()
    dialog = page.get_by_role("dialog")
    address = dialog.get_by_label("Address of this service")
    expect(address).to_have_value(seen.origin)
    expect(dialog).to_contain_text("listens on its own machine alone")
    dialog.get_by_label("Name of the device").fill("lab 9")
    dialog.get_by_role("button", name="Make the command").click()
    command = dialog.locator("#add-command")
    expect(command).to_contain_text(f"--server {seen.origin} --token-file - --name 'lab 9'")
    expect(dialog.get_by_role("status")).to_have_text("Waiting for the device …")
    address.fill("http://10.0.0.5:8090/")
    expect(command).to_contain_text("--server http://10.0.0.5:8090 --token-file - --name 'lab 9' --insecure")
    address.fill("nowhere")
    expect(dialog.get_by_role("alert")).to_contain_text("must be a URL")
    address.fill(seen.origin)
    inspect(seen)
    agent = start_shown_command(command.text_content() or "")
    expect(dialog.get_by_role("status")).to_contain_text("Connected: lab 9.", timeout=START_MS)
    expect(dialog.get_by_role("status")).to_contain_text("onnxruntime")
    expect(page.locator("#devices tbody tr", has_text="lab 9")).to_contain_text("healthy")
    dialog.get_by_role("link", name="Show lab 9").click()
    expect(page.locator("h1")).to_have_text("lab 9")
    expect(page.locator("#health")).to_have_text("healthy")
    page.get_by_role("button", name="Drain").click()
    expect(page.locator("#health")).to_have_text("draining")
    page.get_by_role("button", name="Activate").click()
    expect(page.locator("#health")).to_have_text("healthy")
    page.get_by_role("button", name="Revoke…").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    expect(page.locator("#health")).to_have_text("healthy")
    page.get_by_role("button", name="Revoke…").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke the device").click()
    expect(page.locator("#health")).to_have_text("revoked")
    assert agent.wait(60) == REVOKED
    page.get_by_role("button", name="Enrol again…").click()
    expect(page.get_by_role("dialog").get_by_label("Name of the device")).to_have_value("lab 9")
    page.get_by_role("button", name="Make the command").click()
    command = page.get_by_role("dialog").locator("#add-command")
    expect(command).to_contain_text(f"--server {seen.origin} --token-file - --name 'lab 9'")
    start_shown_command(command.text_content() or "")
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text("Connected: lab 9.", timeout=START_MS)


def test_a_device_at_work(
    watch: Watch,
    member: BrowserContext,
    agent: RemoteAgent,
    api: httpx.Client,
    submit: Submit,
) -> None:
    job = submit(agent.name, name="something to do")
    lease = LeaseResponse.model_validate_json(agent.post("/v1/leases", LeaseRequest(max_items=2, wait_s=30)).content)
    first, _next = lease.items
    agent.post(f"/v1/launches/{first.launch_id}/start", StartRequest(fence=first.fence))
    seen = watch(member, f"/devices/{agent.name}")
    page = seen.page
    rows = page.locator("#held tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("first launch, started")
    expect(rows.nth(1)).to_contain_text("first launch, not started yet")
    expect(rows.first.get_by_role("link", name="something to do")).to_have_attribute("href", f"/jobs/{job['id']}")
    waiting = api.get(f"/v1/devices/{agent.name}/work").json()["waiting"]
    assert figures(page) | {"Last seen": ""} == {
        "Last seen": "", "Launches held": "2", "Waiting for it": str(waiting), "Waiting for its device class": "0",
        "Measuring share": figures(page)["Measuring share"],
    }  # fmt: skip
    page.get_by_text("Queue", exact=True).click()
    expect(page.locator("#queue tbody tr")).to_have_count(1)
    expect(page.locator("#queue tbody tr")).to_contain_text(f"something to dothis device{waiting}")
    expect(page.locator("#runtimes tbody tr").first).to_contain_text("float32, int8")
    inspect(seen)
    agent.post(f"/v1/leases/{lease.lease_id}/release", ReleaseRequest())
    expect(page.locator("#idle")).to_contain_text("It holds no launch")
    api.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()
    expect(page.locator("#waiting")).to_have_text("0")
