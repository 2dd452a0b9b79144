"""An agent's data folder that is copied to a second machine: the second is noticed, and told how to go on."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from concurrency import until
from databases import ON_BOTH
from running_api import Service, problem

from edgefront.agents.loop import Agent
from edgefront.agents.options import AgentOptions
from edgefront.agents.server.client import CopiedDataFolder
from edgefront.agents.server.credential import CredentialFile
from edgefront.api.docs.examples import example
from edgefront.core.schemas.agent import INSTANCE_HEADER, DeviceFacts
from edgefront.core.schemas.service import EnrolmentTokenRequest
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.fleet import devices, instances
from edgefront.core.services.fleet.instances import Instances, _after
from edgefront.core.store.tables import Device

FIRST, SECOND, THIRD = (letter * 32 for letter in "abc")
ADMIN = Principal("key_test", "test", "ada", "admin")


def asks(agent: httpx.Client, instance: str | None) -> httpx.Response:
    headers = {} if instance is None else {INSTANCE_HEADER: instance}
    return agent.post("/v1/leases", json={"wait_s": 0}, headers=headers)


@ON_BOTH
def test_the_second_of_two_agents_with_one_credential_is_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "MAX_DELAY", timedelta(0))
    agent = service.agent()
    for instance in (FIRST, SECOND, FIRST):
        assert asks(agent, instance).status_code == 200
    refused = problem(asks(agent, SECOND), 409)
    for part in ("data folder was copied", "--data-dir", "--name", "edgefront token create"):
        assert part in refused["detail"]
    assert asks(agent, FIRST).status_code == 200
    assert asks(agent, None).status_code == 200  # an agent from before this
    assert asks(agent, "no such form").status_code == 200


def test_which_of_two_agents_goes_on() -> None:
    def after(before: Instances | None, instance: str, now_s: float, *, online: bool = True) -> Instances:
        instances = _after(before, instance, now_s, online=online)
        assert instances is not None
        return instances

    first = after(None, FIRST, 0.0)
    both = after(first, SECOND, 100.0)
    assert after(both, FIRST, 101.0) == both  # may have been sent before the first agent ended
    won = after(both, FIRST, 110.0)
    assert _after(won, SECOND, 120.0, online=True) is None
    again = after(won, THIRD, 130.0)  # the first one is started again: the second stays refused
    assert _after(again, SECOND, 140.0, online=True) is None
    assert after(again, SECOND, 999.0, online=False).current == SECOND  # nobody else is there any more
    assert after(after(again, SECOND, 999.0, online=False), THIRD, 2000.0).refused == SECOND


class Running:
    """An agent in a thread, which asks for work all the time."""

    def __init__(self, service: Service, folder: Path, token: Path | None, name: str = "board") -> None:
        options = AgentOptions(service.url, data_dir=folder, token_file=token, name=name)
        facts = DeviceFacts.model_validate(example("enrol_request")["facts"])
        self.agent = Agent(options, facts, wait_s=0.1)
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.agent.run()
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        self.agent.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


@contextmanager
def running(service: Service, folder: Path, token: Path | None = None, name: str = "board") -> Iterator[Running]:
    run = Running(service, folder, token, name)
    try:
        yield run
    finally:
        run.stop()


@pytest.fixture
def folder(service: Service, tmp_path: Path) -> Path:
    """The data folder of the device `board`, enrolled."""
    with service.database.write() as session:
        now = service.database.now(session)
        _, secret = devices.create_enrolment_token(session, ADMIN, EnrolmentTokenRequest(uses=2), now)
    (tmp_path / "token").write_text(secret)
    data_folder = tmp_path / "board"
    data_folder.mkdir()
    with running(service, data_folder, tmp_path / "token") as agent:
        until(lambda: CredentialFile(data_folder).read(service.url) is not None)
        assert agent.error is None
    return data_folder


def test_a_clone_of_the_machine_ends_with_a_sentence_and_stays_refused(
    service: Service, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have the same id and hardware: only the server sees both."""
    monkeypatch.setattr(instances, "MAX_DELAY", timedelta(0))
    shutil.copytree(folder, tmp_path / "copy")
    enrolled = _current(service)
    with running(service, folder) as first:
        until(lambda: _current(service) != enrolled)
        for _ in range(2):  # a service manager starts it again
            with running(service, tmp_path / "copy") as second:
                second.thread.join(60)
            assert isinstance(second.error, CopiedDataFolder)
            assert "edgefront token create" in str(second.error)
        assert first.thread.is_alive()
    assert first.error is None
    with service.database.write() as session:
        session.get_one(Device, _device(service).id).last_seen_at = None
    with running(service, tmp_path / "copy") as alone:
        until(lambda: CredentialFile(tmp_path / "copy").refused_instance() is None)
        assert alone.error is None


def _device(service: Service) -> Device:
    with service.database.read() as session:
        return devices.get_device(session, ADMIN, "board")


def _current(service: Service) -> str | None:
    instances = _device(service).instances
    return None if instances is None else instances["current"]
