"""The devices as a page: the list, and of each the history of its anchor."""

from __future__ import annotations

import re
from datetime import timedelta

from playwright.sync_api import BrowserContext, expect
from simulated_agent import RemoteAgent, done
from watched_page import Watch

from edgefront.core.services.fleet.device_keys import key_of_device
from edgefront.core.services.jobs.queries import demand
from edgefront.core.services.measuring import anchors
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Device, Launch
from edgefront.embedded.service import EmbeddedService

OWN_SERVICE = True

LATENCIES, ON_CUDA = (1.0, 1.1, 0.9, 2.5), (0.2, 0.3)


def test_a_device_shows_its_anchor_and_why_it_is_in_quarantine(
    watch: Watch, member: BrowserContext, service: EmbeddedService, agent: RemoteAgent
) -> None:
    database = Database(f"sqlite:///{service.home / 'edgefront.db'}")
    with database.write() as session:
        now = database.now(session)
        device = session.get_one(Device, agent.device_id)
        (runtime, *_), key = device.facts["runtimes"], key_of_device(device.id)
        device.facts = {**device.facts, "runtimes": [{**runtime, "providers": ["cpu", "cuda"]}]}
        protocols = anchors.protocols_for(device.facts)
        want = demand.Want(anchors.ARCHITECTURE.digest, anchors.ARCHITECTURE.canonical, anchors.SEED)
        made = {
            hardware: demand.measurements(session, key, protocol.model_dump(mode="json"), protocol.digest, [want])[
                want.digest
            ].id
            for hardware, protocol in protocols.items()
        }
        measured = [("cpu", latency) for latency in LATENCIES] + [("cuda", latency) for latency in ON_CUDA]
        for index, (hardware, latency) in enumerate(measured):
            mark = "other load (9 threads run)" if index == 3 else None
            environment = {"load_1m": 0.1 * index, "temperature_c": 50 + index}
            session.add(
                Launch(
                    measurement_id=made[hardware],
                    device_key=key,
                    state="done",
                    purpose="anchor",
                    device_id=device.id,
                    mark=mark,
                    result={**done(latency, 1 << 20).model_dump(mode="json"), "environment": environment},
                    created_at=now,
                    finished_at=now + timedelta(minutes=30 * index),
                )
            )
        device.quarantine = "its anchor takes longer"
    database.dispose()
    seen = watch(member, "/devices")
    link = seen.page.get_by_role("link", name=agent.name)
    expect(seen.page.locator("#devices")).to_contain_text("in quarantine")
    link.click()
    expect(seen.page.locator("h1")).to_have_text(agent.name)
    expect(seen.page.locator("#quarantine")).to_contain_text("takes longer")
    expect(seen.page.locator("#quarantine")).to_contain_text(f"edgefront device trust {agent.name}")
    expect(seen.page.locator("#points tbody tr")).to_have_count(len(LATENCIES) + len(ON_CUDA))
    expect(seen.page.locator("#points tbody tr").first).to_contain_text("cuda0.300 ms")
    expect(seen.page.locator("#drawing polyline")).to_have_count(4)  # no clock is reported
    captions = seen.page.locator("#drawing figcaption")
    expect(captions.first).to_have_text("Latency on cpu from 0 to 2.5 ms")
    expect(captions.nth(1)).to_have_text("Latency on cuda from 0 to 0.3 ms")
    ends = seen.page.locator("#drawing .ends").first.locator("span")
    expect(ends).to_have_count(2)
    assert ends.first.inner_text() != ends.last.inner_text()
    expect(seen.page.locator("#drawing figure").first.locator("circle.marked title")).to_have_text(
        re.compile("other load")
    )
    expect(seen.page.locator("#marked-help")).to_be_visible()
    expect(seen.page.locator("#hardware")).to_contain_text("8.6 GB of memory")
