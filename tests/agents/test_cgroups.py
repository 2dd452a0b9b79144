"""Limits of control groups: those of any group from the process's own up to the root count, by both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefront.agents.device.cores import within
from edgefront.agents.device.probe import hardware
from edgefront.core.common.processes import limits
from edgefront.core.common.processes.limits import Quota, cpu_quota, groups, throttled_s
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.machine import default_threads, machine_of
from edgefront.workers.app import create_celery

V2 = "31 23 0:28 {root} {mount} rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "32 31 0:29 {root} {mount} rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"


class Tree:
    """A process's groups, as files."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.mount = folder / "proc", folder / "cgroup"
        self.proc.mkdir()

    def process(self, line: str, mounts: str, root: str = "/") -> None:
        (self.proc / "cgroup").write_text(f"1:name=systemd:/\n{line}\n")
        (self.proc / "mountinfo").write_text(mounts.format(root=root, mount=self.mount))

    def group(self, path: str, **files: str) -> Path:
        folder = self.mount / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(f"{text}\n")
        return folder


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_quota_of_systemd_is_seen_below_the_root(tree: Tree) -> None:
    """`CPUQuota=50%` of a unit is in its own group, whose parents and the root have none."""
    tree.process("0::/system.slice/agent.service", V2)
    tree.group("system.slice", cpu__max="max 100000")
    unit = tree.group(
        "system.slice/agent.service", cpu__max="50000 100000", cpu__stat="nr_throttled 3\nthrottled_usec 250000"
    )
    assert cpu_quota(tree.proc) == Quota(0.5, unit)
    assert throttled_s(tree.proc) == 0.25
    assert str(cpu_quota(tree.proc)) == f"a CPU quota of 0.5 cores ({unit})"


def test_the_smallest_quota_on_the_way_up_wins(tree: Tree) -> None:
    tree.process("0::/a/b/c", V2)
    tree.group("a", cpu__max="400000 100000")
    tree.group("a/b", cpu__max="150000 100000")
    tree.group("a/b/c", cpu__max="200000 100000")
    tree.group("d", cpu__max="10000 100000")  # of others
    assert cpu_quota(tree.proc) == Quota(1.5, tree.mount / "a/b")


def test_the_first_version_too(tree: Tree) -> None:
    tree.process("4:cpu,cpuacct:/docker/outer/inner", V1)
    tree.group("docker", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    outer = tree.group(
        "docker/outer", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000", cpu__stat="throttled_time 500000000"
    )
    assert cpu_quota(tree.proc) == Quota(2.0, outer)
    assert throttled_s(tree.proc) == 0.5


def test_a_container_sees_its_groups_from_the_mounts_top(tree: Tree) -> None:
    """The host's path of the container is the mount's top; groups that the container makes are below it."""
    tree.process("4:cpu,cpuacct:/docker/outer/inner", V1, root="/docker/outer")
    tree.group("", cpu__cfs_quota_us="300000", cpu__cfs_period_us="100000")
    inner = tree.group("inner", cpu__cfs_quota_us="100000", cpu__cfs_period_us="100000")
    assert groups("cpu", tree.proc) == [inner, tree.mount]
    assert cpu_quota(tree.proc) == Quota(1.0, inner)
    tree.process("0::/../elsewhere", V2)
    assert groups("cpu", tree.proc) == [tree.mount]


@pytest.mark.parametrize(
    ("line", "mounts", "memory", "quota"),
    [
        ("0::/box", V2, {"memory__max": "2147483648", "memory__current": "1"}, {"cpu__max": "50000 100000"}),
        (
            "4:cpu,cpuacct,memory:/box",
            V1.replace("cpuacct", "cpuacct,memory"),
            {"memory__limit_in_bytes": "2147483648", "memory__usage_in_bytes": "1"},
            {"cpu__cfs_quota_us": "50000", "cpu__cfs_period_us": "100000"},
        ),
    ],
    ids=["v2", "v1"],
)
def test_agent_trainer_and_worker_see_the_limits_of_their_container(
    line: str, mounts: str, memory: dict[str, str], quota: dict[str, str], tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.process(line, mounts)
    tree.group("box", **memory, **quota)
    monkeypatch.setattr(limits, "groups", lambda controller, _proc=None: groups(controller, tree.proc))
    monkeypatch.setattr(limits, "allowed_cores", lambda: frozenset(range(64)))
    settings = Settings(home=tree.proc)
    worker = create_celery(settings)
    assert hardware().memory_bytes == machine_of(settings).memory_bytes == 2 << 30
    assert hardware().cores == default_threads("cpu", 1) == worker.conf.worker_concurrency == 1


def test_no_quota_and_no_groups(tree: Tree, tmp_path: Path) -> None:
    tree.process("0::/", V2)
    tree.group("", cpu__max="max 100000")
    assert cpu_quota(tree.proc) is None
    assert cpu_quota(tmp_path / "none") is None
    assert throttled_s(tmp_path / "none") == 0.0


def test_the_plan_counts_the_whole_cores_of_a_quota() -> None:
    order = (7, 6, 5, 4)
    for cores, planned in ((0.5, (7,)), (1.9, (7,)), (2.0, (7, 6)), (64.0, order)):
        assert within(order, Quota(cores, Path("/"))) == planned
    assert within(order, None) == order
