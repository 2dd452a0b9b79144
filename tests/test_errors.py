"""An error's path: where it is made it knows its own field, and each caller puts its own keys before."""

from __future__ import annotations

import pytest

from edgefront.core.common.errors import (
    Conflict,
    EdgefrontError,
    InvalidInput,
    MeasurementError,
    NotFound,
    SpaceError,
    within,
)


def test_a_detail_that_begins_with_the_field_keeps_beginning_with_it() -> None:
    inner = InvalidInput(
        "n_head must divide 8, not 3: n_head 2 does", field="n_head", value=3, allowed="a divisor of 8"
    )
    outer = inner.under("blocks", 3).under("architecture")
    assert outer.detail == "architecture.blocks.3.n_head must divide 8, not 3: n_head 2 does" == str(outer)
    assert outer.path == ("architecture", "blocks", "3", "n_head")
    assert outer.extra == {"field": "architecture.blocks.3.n_head", "value": 3, "allowed": "a divisor of 8"}
    assert (inner.field, inner.detail) == ("n_head", "n_head must divide 8, not 3: n_head 2 does")


@pytest.mark.parametrize("detail", ["no gene 'widht'", "widhtless: no gene", "the field widht is unknown"])
def test_a_detail_of_its_own_words_stays(detail: str) -> None:
    error = SpaceError(detail, field="widht").under("space", "narrow")
    assert (error.detail, error.field) == (detail, "space.narrow.widht")


def test_an_error_of_the_whole_names_its_keys() -> None:
    error = InvalidInput("not JSON", allowed="a JSON object")
    assert error.extra["field"] == ""
    moved = error.under("architecture").under("source")
    assert (moved.detail, moved.field) == ("source.architecture: not JSON", "source.architecture")


def test_a_key_may_hold_dots() -> None:
    error = InvalidInput("a.b: unknown", field=("a.b",)).under("facts")
    assert (error.path, error.detail) == (("facts", "a.b"), "facts.a.b: unknown")


@pytest.mark.parametrize(
    ("error", "field"),
    [
        (InvalidInput("device: none", field="device"), "targets.1.device"),
        (SpaceError("none", field="device"), "targets.1.device"),
        (NotFound("no such device", field="device", value="x"), "targets.1.device"),
        (Conflict("it was revoked"), ""),
        (MeasurementError("no memory", reason="out_of_memory"), ""),
    ],
)
def test_exceptions_inside_keep_their_type(error: EdgefrontError, field: str) -> None:
    with pytest.raises(type(error)) as caught, within("targets", 1):
        raise error
    assert caught.value.field == field


def test_a_cause_is_kept_where_there_is_no_field() -> None:
    with pytest.raises(Conflict) as caught, within("targets"):
        raise Conflict("busy") from ValueError("of the driver")
    assert isinstance(caught.value.__cause__, ValueError)
