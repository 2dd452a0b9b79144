"""Nothing that was measured is lost: not by crashes, not by full disks, not by broken files."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from spooled import entry, launches

from edgefront.agents.server.spool import Spool


def test_results_are_there_after_a_restart_in_order(tmp_path):
    spool = Spool(tmp_path / "spool")
    for number in range(12):
        assert spool.put(entry(number))
    assert launches(Spool(tmp_path / "spool")) == [f"lau_{number}" for number in range(12)]
    again = Spool(tmp_path / "spool")
    assert list(again.oldest(1).values()) == [entry(0)]
    again.drop(again.oldest(11))
    assert launches(Spool(tmp_path / "spool")) == ["lau_11"]


def test_a_broken_file_is_set_aside_and_the_others_are_sent(tmp_path):
    spool = Spool(tmp_path)
    for number in range(3):
        spool.put(entry(number))
    middle = sorted(tmp_path.glob("*.json"))[1]
    middle.write_bytes(middle.read_bytes()[:40])
    (tmp_path / ".cut-short.part").write_bytes(b"{")
    again = Spool(tmp_path)
    assert launches(again) == ["lau_0", "lau_2"]
    assert middle.with_suffix(".corrupt").exists()
    assert list(tmp_path.glob(".*.part")) == []
    assert launches(Spool(tmp_path)) == ["lau_0", "lau_2"]


def test_a_refused_result_is_kept_but_not_sent_again(tmp_path):
    spool = Spool(tmp_path)
    spool.put(entry(1))
    spool.set_aside(next(iter(spool.oldest(1))), "absurd")
    assert len(spool) == 0
    assert len(Spool(tmp_path)) == 0
    assert len(list(tmp_path.glob("*.refused"))) == 1


FULL = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from spooled import entry, launches
from edgefront.agents.server.spool import Spool

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
spool = Spool(Path(sys.argv[1]))
assert spool.put(entry(0))
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
assert not spool.put(entry(1))
assert not spool.put(entry(2))
assert not spool.writable()
assert launches(spool) == ["lau_0", "lau_1", "lau_2"]
assert launches(Spool(Path(sys.argv[1]))) == ["lau_0"]
spool.drop([list(spool.oldest(2))[1]])
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert spool.writable()
assert launches(Spool(Path(sys.argv[1]))) == ["lau_0", "lau_2"]
print("held")
"""


def test_a_full_disk_loses_no_results(tmp_path):
    """The system refuses to let files grow past 10 bytes; when it does again, what waited in memory is written."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    code = textwrap.dedent(FULL).format(tests=str(Path(__file__).parent))
    answer = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert answer.stdout.strip() == "held", answer.stderr


def test_a_full_folder_is_not_writable(tmp_path):
    """A real full file system where this user may mount one; else a folder that nothing can be made in."""
    folder = tmp_path / "full"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode == 0:
        try:
            spool = Spool(folder)
            assert spool.writable()
            with pytest.raises(OSError, match="No space"):
                (folder / "filler").write_bytes(b"\0" * 100_000)
            assert not spool.put(entry(1))
            assert not spool.writable()
            (folder / "filler").unlink()
            assert spool.writable()
            assert launches(Spool(folder)) == ["lau_1"]
        finally:
            subprocess.run(["umount", str(folder)], check=True)
    else:
        spool = Spool(folder)
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
        assert os.getuid() != 0
        assert not spool.put(entry(1))
        assert not spool.writable()
        folder.chmod(stat.S_IRWXU)
        assert spool.writable()
        assert launches(Spool(folder)) == ["lau_1"]
