"""Text is read little by little, and nothing is lost, added or taken for what it is not."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.sources import text as reading
from edgefront.core.data.sources.text import Counts, FilePart, decoded, documents, json_lines, lines

TEXT = st.text(st.sampled_from("ab \n\té漢🙂\u3000\r"), max_size=80)

ENDS_OF_UNICODE = "\u0085\u2028\u2029"
"""Where `str.splitlines` cuts, of what JSON may hold as it is."""


def nothing(count: int) -> None:
    pass


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few characters are as much as megabytes are."""
    monkeypatch.setattr(reading, "_BLOCK_CHARACTERS", 5)
    monkeypatch.setattr(reading, "_MAX_WORD", 12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXT)
def test_pieces_are_the_text_cut_before_white_space(small_blocks: None, tmp_path: Path, text: str) -> None:
    path = tmp_path / "text"
    path.write_bytes(text.encode())
    read: list[int] = []
    pieces = list(documents([FilePart.whole(path)], read.append))
    assert "".join(piece for piece, _ in pieces) == text
    assert sum(read) == len(text.encode())
    assert [end for _, end in pieces] == [False] * (len(pieces) - 1) + [True] * bool(pieces)
    for (before, _), (after, _) in pairwise(pieces):
        assert len(before) > 12 or (after[0].isspace() and not before[-1].isspace())
    words = Counts(*np.sum([Counts.of(piece) for piece, _ in pieces] or [Counts(0, 0, 0)], axis=0))
    if all(len(piece) <= 12 for piece, _ in pieces):
        assert words == Counts.of(text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TEXT, max_size=3))
def test_lines_are_those_of_the_files(small_blocks: None, tmp_path: Path, texts: list[str]) -> None:
    parts, wanted = [], []
    for number, text in enumerate(texts):
        path = tmp_path / str(number)
        path.write_bytes(text.encode())
        parts.append(FilePart.whole(path))
        *whole, rest = text.split("\n")
        wanted += [f"{line}\n" for line in whole] + ([rest] if rest else [])
    found, begun = [], ""
    for piece, end in lines(parts, nothing):
        begun += piece
        if end:
            found.append(begun)
            begun = ""
    assert (found, begun) == (wanted, "")


def test_a_part_of_a_file_is_exact_even_in_the_middle_of_a_character(tmp_path: Path) -> None:
    raw = "aé漢🙂b".encode()
    path = tmp_path / "text"
    path.write_bytes(raw)
    for start in range(len(raw)):
        for stop in range(start, len(raw) + 1):
            text = "".join(decoded(FilePart(path, start, stop, splits_characters=True), nothing))
            assert text.encode("utf-8", "surrogateescape") == raw[start:stop]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfhello")
    assert list(documents([FilePart.whole(path)], nothing)) == [("hello", True)]
    path.write_bytes(b"\xef\xbb\xbf" + b"a" * 100_000 + b"\xff")
    with pytest.raises(InvalidInput, match=f"{path} is not UTF-8 at byte 100,003$"):
        list(documents([FilePart.whole(path)], nothing))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"ok \xff\xfe", "at byte 3$"),
        (b"a" * 70_000 + b"\x80", "at byte 70,000$"),
        ("aé".encode()[:-1], "at byte 1$"),
        (gzip.compress(b"text", mtime=0), "at byte 1$"),
    ],
)
def test_invalid_utf8_is_reported_with_its_position(tmp_path: Path, raw: bytes, said: str) -> None:
    path = tmp_path / "text"
    path.write_bytes(raw)
    with pytest.raises(InvalidInput, match=said) as caught:
        list(lines([FilePart.whole(path)], nothing))
    assert caught.value.value == str(path)


def test_json_lines_give_their_texts(tmp_path: Path) -> None:
    path = tmp_path / "text.jsonl"
    rows = [{"text": "one\ntwo"}, {"text": ""}, {"text": "a" * 150_000 + " b", "meta": 1}, {"text": "\ud800x"}]
    path.write_text("\n\n".join(json.dumps(row) for row in rows))
    read: list[int] = []
    pieces = list(json_lines([FilePart.whole(path)], "text", read.append))
    assert "".join(text for text, _ in pieces) == "one\ntwo" + "a" * 150_000 + " b" + "\ufffdx"
    assert sum(end for _, end in pieces) == 3
    assert sum(read) == path.stat().st_size


def test_a_json_line_ends_at_a_line_feed_alone(tmp_path: Path) -> None:
    path = tmp_path / "text.jsonl"
    texts = [f"one{end}two" for end in ENDS_OF_UNICODE]
    path.write_text("\r\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts), encoding="utf-8-sig")
    pieces = list(json_lines([FilePart.whole(path)], "text", nothing))
    assert "".join(text for text, _ in pieces) == "".join(texts)
    assert sum(end for _, end in pieces) == len(texts)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 of .* is not JSON"),
        ('{"body": "x"}', "the field 'text' of line 2 of .* is missing: it has body"),
        ('{"text": 3}', "the field 'text' of line 2 of .* is a int, not text"),
        ('{"text": null}', "is null, not text"),
        ('{"text": ["a"]}', "is a list, not text"),
        ("[1]", "line 2 of .* is not a JSON object, but a list"),
        ("[" * 100_000, "line 2 of .* is not JSON"),
    ],
)
def test_a_wrong_json_line_is_reported_with_its_number(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "text.jsonl"
    path.write_text(f'{{"text": "x"}}\n{line}\n')
    with pytest.raises(InvalidInput, match=said):
        list(json_lines([FilePart.whole(path)], "text", nothing))


def test_a_file_that_shrinks_meanwhile_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("abc")
    with pytest.raises(InvalidInput, match="became shorter while it was read"):
        list(documents([FilePart(path, 0, 10)], nothing))
