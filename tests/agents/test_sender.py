"""What the sender does when the server refuses results, and the device."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from spooled import entry, launches

from edgefront.agents.server import spool as sending
from edgefront.agents.server.client import AgentClient
from edgefront.agents.server.spool import Sender, Spool
from edgefront.core.schemas.agent import ReportReceipt, ReportResponse


@pytest.mark.parametrize("status", [401, 410])
def test_a_device_that_must_rejoin_while_results_are_sent_one_by_one_keeps_sending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """It ended the agent, which then never enrolled again."""
    monkeypatch.setattr(sending, "_REJOIN_S", 0.01)
    spool = Spool(tmp_path)
    for number in range(3):
        spool.put(entry(number))
    refused = [status]

    def answer(request: httpx.Request) -> httpx.Response:
        sent = [report["launch_id"] for report in json.loads(request.content)["reports"]]
        if len(sent) > 1 or sent == ["lau_1"]:
            return httpx.Response(422, json={"detail": "one of them is absurd"})
        if sent == ["lau_2"] and refused:
            return httpx.Response(refused.pop())
        receipts = tuple(ReportReceipt(launch_id=launch_id, outcome="accepted") for launch_id in sent)
        return httpx.Response(200, text=ReportResponse(receipts=receipts).model_dump_json())

    async def run() -> None:
        async with AgentClient("http://127.0.0.1:1") as client:
            client._http = httpx.AsyncClient(base_url=client.server, transport=httpx.MockTransport(answer))
            sender = Sender(client, spool, lambda _: None)
            running = asyncio.create_task(sender.run())
            assert await sender.flush(30.0)
            running.cancel()

    asyncio.run(run())
    assert refused == []
    assert launches(spool) == []
    assert [json.loads(path.read_text())["report"]["launch_id"] for path in tmp_path.glob("*.refused")] == ["lau_1"]
