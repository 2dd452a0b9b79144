"""What is printed at the width of a terminal: no identifier, name or state is cut."""

from __future__ import annotations

import io
import re
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from running_client import Running

from edgefront.cli import exits
from edgefront.client.show.table import Table, short_ids

IDS = st.text("0123456789abcdefghjkmnpqrstvwxyz", min_size=26, max_size=26).map("job_{}".format)
NAMES = st.text(ascii_lowercase, min_size=1, max_size=20)


def printed(shown: Table, width: int) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width, highlight=False).print(shown)
    return text.getvalue().splitlines()


@given(
    st.lists(st.tuples(IDS, NAMES, st.floats(0, 1e6).map("{:.1f}".format)), min_size=1, max_size=6),
    st.integers(60, 200),
)
def test_ids_names_states_and_numbers_stand_whole_on_their_line(rows: list[tuple[str, str, str]], width: int) -> None:
    shown = Table(
        *("id", "name", "state", "measured", "targets", "created", "note"),
        right=("measured",),
        wrap=("note",),
        drop_first=("targets", "created", "note"),
    )
    for job, name, number in rows:
        shown.add_row(
            job, name, "cancelled", number, "a board of some name", "2026-11-23 03:34:20", "waits for it " * 9
        )
    lines = printed(shown, width)
    assert all(len(line) <= width for line in lines)
    tails = short_ids(job for job, _, _ in rows)
    for job, name, number in rows:
        ids = f"(?:{job}|{tails[job]})"
        assert any(re.match(rf" {ids} +{name} +cancelled +{re.escape(number)}\b", line) for line in lines), lines
    missing = [heading for heading in ("targets", "created", "note") if not any(heading in line for line in lines[:2])]
    assert all(heading in lines[-1] for heading in missing)
    assert (lines[-1].endswith("--wide shows all.") or lines[-2].endswith("--wide")) == bool(missing)


def test_short_ids_are_as_long_as_they_must_be() -> None:
    alike = [f"cnd_01m83780s1q9eqevd0p7rkmhs{last}" for last in "234"]
    assert list(short_ids(alike).values()) == ["rkmhs2", "rkmhs3", "rkmhs4"]
    far = ["job_01m83780s1q9eqevd0p7rkmhs2", "job_11m83780s1q9eqevd0p7rkmhs2"]
    assert set(short_ids(far).values()) == {id_[4:] for id_ in far}


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lists_fit_and_their_short_ids_are_accepted(running: Running, width: int) -> None:
    def show(*arguments: str) -> str:
        done = running.command(*arguments, env={"COLUMNS": str(width)}, code=exits.OK)
        return done.stdout

    job = running.job
    listed = show("job", "list")
    (line,) = [line for line in listed.splitlines() if job.id[-6:] in line]
    assert {"small", "finished"} <= set(line.split())
    assert max(map(len, listed.splitlines())) <= width
    assert "finished" in show("job", "show", job.id[-6:])
    points = running.client.frontier(job.id).points
    frontier = show("frontier", job.id[-6:])
    tails = short_ids(point.id for point in points)
    for point in points:
        assert any(line.split()[:1] in ([point.id], [tails[point.id]]) for line in frontier.splitlines())
    assert running.board in show("device", "list")
    assert all(token.id[-6:] in show("token", "list") for token in running.client.tokens.list())
    wide = show("frontier", job.id, "--wide")
    assert "launches" in wide
    assert all(point.id in wide for point in points)
    assert "Not shown" not in wide


def test_without_a_terminal_nothing_is_left_out(running: Running) -> None:
    listed = running.command("job list", env={"COLUMNS": ""}).stdout
    assert running.job.id in listed
    assert "created" in listed


def test_a_device_is_shown_in_units(running: Running) -> None:
    for width in ("60", "120"):
        shown = running.command("device show", running.board, env={"COLUMNS": width}).stdout
        assert re.search(r"memory +\d+(\.\d)? GB", shown)
        assert re.search(r"seen +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", shown)
        assert "{" not in shown
