"""An agent in a thread of this process, its launches and what it reported."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import subjects
from scripted_server import Script

from edgefront.agents.loop import Agent
from edgefront.agents.options import AgentOptions
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.agent import DeviceFacts, LeaseItem

PROTOCOL = MeasurementProtocol(sequence_length=16)


def item(number: int, protocol: MeasurementProtocol = PROTOCOL, **model: int) -> LeaseItem:
    architecture = subjects.gpt(**model)
    return LeaseItem(
        launch_id=f"lau_{number}",
        fence=number + 1,
        digest=architecture.digest,
        architecture=architecture.canonical,
        protocol=protocol,
        seed=3,
    )


def slow(number: int, repeats: int = 40) -> LeaseItem:
    """About two seconds of passes."""
    return item(number, PROTOCOL.model_copy(update={"sequence_length": 512, "repeats": repeats}), layers=4, d_model=256)


class Running:
    """An agent in a thread."""

    def __init__(self, start: tuple[AgentOptions, DeviceFacts, float]) -> None:
        self.agent = Agent(*start[:2], wait_s=start[2])
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.agent.run()
        except BaseException as error:
            self.error = error

    def ended(self, timeout_s: float = 120.0) -> bool:
        self.thread.join(timeout_s)
        return not self.thread.is_alive()


@contextmanager
def running(start: tuple[AgentOptions, DeviceFacts, float]) -> Iterator[Running]:
    run = Running(start)
    run.thread.start()
    try:
        yield run
    finally:
        run.agent.stop()
        run.agent.stop()
        assert run.ended()


def reported(script: Script) -> list[str]:
    return [report.launch_id for report in script.reports]


def ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
