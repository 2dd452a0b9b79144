"""The agent against a server that does as told: work, outages, refusals, draining."""

from __future__ import annotations

import logging
import stat
import threading
from pathlib import Path

import pytest
from running_agent import item, reported, running, slow
from scripted_server import CREDENTIAL, Script, ScriptedServer, wait_for

from edgefront.agents.measuring import measure
from edgefront.agents.measuring.failures import failure
from edgefront.agents.measuring.forkserver import lock_path, only_measurement
from edgefront.agents.measuring.measure import Measurer
from edgefront.agents.server import client as client_module
from edgefront.agents.server.client import AgentClient, ProtocolMismatch
from edgefront.agents.server.credential import CredentialFile
from edgefront.agents.server.spool import Spool, SpooledReport
from edgefront.core.common.errors import Conflict, Gone, InvalidInput, Unauthenticated
from edgefront.core.schemas.agent import LaunchReport


def spool_with(folder: Path, count: int, busy_s: float = 0.0) -> Spool:
    """Results of an earlier run."""
    spool = Spool(folder / "spool")
    for number in range(count):
        report = LaunchReport(launch_id=f"lau_{number}", fence=1, result=failure("crashed", "boom"))
        spool.put(SpooledReport(report=report, busy_s=busy_s))
    return spool


def test_enrols_once_measures_and_drains(config, folder):
    script = Script()
    script.items.extend(item(number) for number in range(6))
    with ScriptedServer(script) as server:
        with running(config(server.url)) as run:
            wait_for(lambda: len(script.reports) == 6)
            run.agent.stop()
            assert run.ended()
            assert run.error is None
        credential = folder / "credential.json"
        assert stat.S_IMODE(credential.stat().st_mode) == 0o600
        assert CREDENTIAL in credential.read_text()
        script.items.append(item(6))
        with running(config(server.url, token_file=None)):
            wait_for(lambda: len(script.reports) == 7)
    assert len(script.enrolled) == 1
    assert script.enrolled[0].device_class
    assert len(script.facts) == 2  # once in each run
    assert {runtime.runtime for runtime in script.facts[0].runtimes} >= {"onnxruntime", "pytorch"}
    assert reported(script) == [f"lau_{number}" for number in range(7)]
    assert sorted(script.started) == reported(script)  # each its own request, so they may overtake each other
    assert [report.fence for report in script.reports] == list(range(1, 8))
    assert all(report.result.outcome == "done" for report in script.reports)
    assert sum(report.result.measuring_s for report in script.reports) < script.busy_s
    assert script.polls_cut_short >= 1
    assert script.released == []


def test_says_that_it_waits_for_another_measurement_on_this_host(config, monkeypatch):
    monkeypatch.setattr(measure, "WAIT_S", 0.05)
    script = Script()
    script.items.append(item(0))
    with ScriptedServer(script) as server, only_measurement(lock_path()), running(config(server.url)) as run:
        wait_for(lambda: script.conditions)
        run.agent.stop()
    assert script.conditions == ["waits until another measurement on this host ends"]


def test_a_bad_answer_is_no_answer(config):
    script = Script(first=(401, {}, b"<html>sign in</html>"))
    script.items.append(item(0))
    with ScriptedServer(script) as server, running(config(server.url, wait_s=1.0)) as run:
        wait_for(lambda: script.reports)
        run.agent.stop()
        assert run.ended()
        assert run.error is None
    assert reported(script) == ["lau_0"]


def test_goes_on_after_an_error_that_nobody_has_foreseen(config, monkeypatch):
    failed = set()

    def failing(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def first_fails(*args, **options):
            if name not in failed:
                failed.add(name)
                raise ZeroDivisionError(name)
            return original(*args, **options)

        monkeypatch.setattr(owner, name, first_fails)

    monkeypatch.setattr(client_module, "AFTER_FAILURE_S", 0.01)
    for owner, name in (
        *((AgentClient, name) for name in ("start", "lease", "heartbeat", "report")),
        *((Spool, "oldest"), (Measurer, "measure")),
    ):
        failing(owner, name)
    script = Script()
    script.items.extend([item(0), slow(1), slow(2)])
    with ScriptedServer(script) as server, running(config(server.url, wait_s=1.0)) as run:
        wait_for(lambda: len(script.reports) == 3)
        run.agent.stop()
        assert run.ended()
        assert run.error is None
    assert failed == {"start", "lease", "heartbeat", "report", "oldest", "measure"}
    results = {report.launch_id: report.result for report in script.reports}
    assert results["lau_0"].reason == "crashed"
    assert "ZeroDivisionError" in results["lau_0"].message


def test_asks_for_the_next_batch_while_it_measures_the_last_launch(config):
    script = Script(outcome=lambda report: "accepted")
    script.items.extend(slow(number) for number in range(2))
    with ScriptedServer(script) as server, running(config(server.url, batch=1)):
        wait_for(lambda: len(script.reports) == 2)
    asked = [number for number, path in enumerate(script.requests) if path == "/v1/leases"]
    assert len(script.leases) == 2
    assert asked[1] < script.requests.index("/v1/reports")


def test_drains_while_the_server_is_unavailable(config):
    with ScriptedServer(Script()) as server:
        pass
    with running(config(server.url)) as run:
        run.agent.stop()
        assert run.ended()
        assert run.error is None


def test_measures_its_launches_while_the_server_is_unavailable_and_reports_later(config, folder):
    script = Script(away_after=1)
    script.items.extend(item(number) for number in range(4))
    with ScriptedServer(script) as server, running(config(server.url)):
        spool = folder / "spool"
        wait_for(lambda: len(list(spool.glob("*.json"))) == 4)
        assert script.reports == []
        script.status.clear()
        wait_for(lambda: len(script.reports) == 4)
    assert sorted(reported(script)) == [f"lau_{number}" for number in range(4)]
    assert list(spool.glob("*.json")) == []


def test_sends_results_of_an_earlier_run(config, folder):
    script = Script()
    with ScriptedServer(script) as server:
        spool_with(folder, 40, busy_s=0.5)
        with running(config(server.url)):
            wait_for(lambda: len(script.reports) == 40)
    assert reported(script) == [f"lau_{number}" for number in range(40)]
    assert script.busy_s == pytest.approx(20.0)
    assert script.requests.count("/v1/reports") == 2


def test_receipts_of_every_kind_end_the_matter(config, folder):
    outcomes = ["conflict", "unknown", "cancelled", "duplicate"]
    script = Script(outcome=lambda report: outcomes[int(report.launch_id[-1])])
    script.items.extend(item(number) for number in range(4))
    with ScriptedServer(script) as server, running(config(server.url)):
        wait_for(lambda: len(script.reports) == 4)
        wait_for(lambda: not list((folder / "spool").glob("*.json")))
    assert len(script.reports) == 4


def test_a_result_that_the_server_refuses_holds_up_no_other(config, folder):
    script = Script()
    with ScriptedServer(script) as server:
        spool = spool_with(folder, 2)
        script.status["/v1/reports"] = 422
        with running(config(server.url)):
            wait_for(lambda: len(list(spool.folder.glob("*.refused"))) == 2)
            script.status.clear()
            script.items.append(item(5))
            wait_for(lambda: reported(script) == ["lau_5"])


def test_cancelled_launches_are_skipped(config):
    script = Script(cancelled=("lau_1", "lau_2"))
    script.items.extend([slow(0), item(1), item(2), item(3)])
    with ScriptedServer(script) as server, running(config(server.url)):
        wait_for(lambda: "lau_3" in reported(script))
    assert reported(script) == ["lau_0", "lau_3"]


def test_launches_of_a_lost_lease_are_dropped_unless_started(config):
    script = Script()
    script.items.extend([slow(0), item(1), item(2)])
    with ScriptedServer(script) as server, running(config(server.url)):
        wait_for(lambda: script.started)
        script.status["/v1/leases/lse_1/heartbeat"] = 410
        wait_for(lambda: reported(script) == ["lau_0"])
        script.items.append(item(9))
        wait_for(lambda: "lau_9" in reported(script))
    assert reported(script) == ["lau_0", "lau_9"]


def test_a_draining_device_waits_without_running_in_circles_and_says_why(config, caplog):
    caplog.set_level(logging.INFO, "edgefront.agents")
    script = Script(state="draining", blocked_reason="launch%20lau_1%20is%20implausible%3A%209%20%C2%B5s")
    with ScriptedServer(script) as server, running(config(server.url, wait_s=0.5)):
        wait_for(lambda: script.requests.count("/v1/leases") > 1)
        asked = script.requests.count("/v1/leases")
        threading.Event().wait(1.0)
        assert script.requests.count("/v1/leases") <= asked + 3
        script.state = "active"
        asked = script.requests.count("/v1/leases")
        wait_for(lambda: script.requests.count("/v1/leases") > asked + 1)  # the same reason with another state
        script.blocked_reason = None
        script.items.append(item(0))
        wait_for(lambda: reported(script) == ["lau_0"])
    assert caplog.text.count("this device gets no launches: launch lau_1 is implausible: 9 µs") == 1
    assert "the server reports this device as active" in caplog.text


def test_a_bad_item_is_reported_and_the_next_one_measured(config):
    script = Script()
    newer = item(0).model_copy(update={"architecture": {"version": 99}})
    script.items.extend([newer, item(1)])
    with ScriptedServer(script) as server, running(config(server.url)):
        wait_for(lambda: len(script.reports) == 2)
    assert script.reports[0].result.reason == "unsupported"
    assert script.reports[1].result.outcome == "done"


@pytest.mark.parametrize(("status", "kind"), [(401, Unauthenticated), (410, Gone), (426, ProtocolMismatch)])
def test_a_server_that_does_not_want_the_device_ends_the_agent(config, status, kind):
    script = Script()
    with ScriptedServer(script) as server:
        with running(config(server.url)) as run:
            wait_for(lambda: "/v1/leases" in script.requests)
            run.agent.stop()
        script.status["/v1/leases"] = status
        with running(config(server.url, token_file=None)) as run:
            assert run.ended()
        assert isinstance(run.error, kind)


def test_a_revoked_device_leaves_a_launch_unfinished(config):
    script = Script()
    script.items.append(slow(0, repeats=1000))
    with ScriptedServer(script) as server, running(config(server.url)) as run:
        wait_for(lambda: script.started)
        script.status["/v1/"] = 410
        assert run.ended()
        assert isinstance(run.error, Gone)


def test_enrols_again_where_the_server_does_not_know_the_device(config):
    script = Script()
    with ScriptedServer(script) as server:
        with running(config(server.url)) as run:
            wait_for(lambda: "/v1/leases" in script.requests)
            run.agent.stop()
        script.credential = "efa_" + "n" * 43
        script.items.append(item(0))
        with running(config(server.url)):
            wait_for(lambda: reported(script) == ["lau_0"])
    assert len(script.enrolled) == 2


def test_an_enrolment_is_repeated_with_its_nonce(config, folder):
    folder.mkdir()
    nonce = CredentialFile(folder).nonce()  # of an agent that was killed before its answer came
    path = folder / "enrolment-nonce"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    script = Script()
    with ScriptedServer(script) as server, running(config(server.url)):
        wait_for(lambda: "/v1/leases" in script.requests)
    assert [request.nonce for request in script.enrolled] == [nonce]
    assert not path.exists()
    assert CredentialFile(folder).nonce() != nonce
    path.write_bytes(b"\xff")
    assert len(CredentialFile(folder).nonce()) == 43


def test_a_token_that_is_for_other_devices_leaves_the_credential_where_it_is(config, folder):
    script = Script()
    with ScriptedServer(script) as server:
        with running(config(server.url)):
            wait_for(lambda: script.requests.count("/v1/leases") == 1)
        script.credential = "efa_" + "d" * 43
        script.status = {"/v1/agents/enrol": 409}
        with running(config(server.url)) as run:
            assert run.ended()
        assert isinstance(run.error, Conflict)
        script.status["/v1/leases"] = 410
        with running(config(server.url)) as run:
            assert run.ended()
        assert isinstance(run.error, Gone)
    assert CREDENTIAL in (folder / "credential.json").read_text()


def test_a_revoked_device_enrols_again_by_a_token_made_for_it(config):
    script = Script(gone=1)
    script.items.append(item(0))
    with ScriptedServer(script) as server, running(config(server.url)) as run:
        wait_for(lambda: len(script.reports) == 1)
        assert run.error is None
    assert len(script.enrolled) == 2


def test_says_what_is_missing_to_enrol(config, tmp_path):
    with ScriptedServer(Script()) as server:
        cases = {None: "--token-file", tmp_path / "nowhere": "cannot be read", tmp_path / "empty": "no enrolment token"}
        (tmp_path / "empty").write_text("\n")
        for path, words in cases.items():
            with running(config(server.url, token_file=path)) as run:
                assert run.ended()
            assert isinstance(run.error, InvalidInput)
            assert words in str(run.error)


def test_takes_no_new_work_while_the_spool_cannot_be_written(config, folder, monkeypatch):
    """The spool's folder is gone from under the agent: results wait in memory and still reach the server."""
    monkeypatch.setattr("edgefront.agents.server.leasing._DISK_S", 0.3)
    script = Script()
    with ScriptedServer(script) as server, running(config(server.url)):
        wait_for(lambda: "/v1/leases" in script.requests)
        spool = folder / "spool"
        spool.rename(folder / "elsewhere")
        script.items.extend(item(number) for number in range(2))
        wait_for(lambda: len(script.reports) == 2)
        asked = script.requests.count("/v1/leases")
        script.items.append(item(2))
        threading.Event().wait(1.0)
        assert script.requests.count("/v1/leases") <= asked + 1
        (folder / "elsewhere").rename(spool)
        wait_for(lambda: "lau_2" in reported(script))
