"""Tables of latencies: what is read, what is refused, and a spread-out choice of their rows."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.prediction.spread import farthest, spread
from edgefront.core.prediction.table import PROTOCOL, read_table
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import BLOCK_KINDS

GOLDEN = Path(__file__).parents[1] / "golden" / "hwgpt_latency_s.csv.gz"
HEAD = "embed_dim,n_layer,n_head,mlp_ratio,bias,phone_ms"
ROW = "192,2,4-8,2-3.5,1,12.5"


def written(folder: Path, *lines: str) -> Path:
    path = folder / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rows_are_the_architectures_that_they_describe(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, HEAD, ROW, "96,1,4,2,0,3"))
    described = Architecture.parse(
        {
            "d_model": 192,
            "embedding": {"vocab_size": 50257},
            "blocks": [
                {"kind": "attention", "n_head": 4},
                {"kind": "feed_forward", "d_inner": 384},
                {"kind": "attention", "n_head": 8},
                {"kind": "feed_forward", "d_inner": 672},
            ],
        }
    )
    expected, row = Shapes.of([described]), table.shapes.take([0])
    for name in ("d_model", "d_embed", "div", "vocab_size", "kind", "heads", "width", "attends", "parameters"):
        assert (getattr(row, name) == getattr(expected, name)).all(), name
    assert row.decoder_parameters == expected.decoder_parameters
    assert row.output_weights == expected.output_weights
    assert table.shapes.parameters[1].tolist() == [4 * 96**2 + 2 * 96, 4 * 96**2 + 2 * 96, 0, 0]  # no biases
    assert table.columns["phone_ms"].tolist() == [12.5, 3]


def test_the_published_table_is_read() -> None:
    table = read_table(GOLDEN)
    assert len(table.shapes) == 1000
    assert list(table.columns) == ["a100_ms", "v100_ms", "rtx2080_ms", "rtx3080_ms", "cpu_alldlc_ms", "helix_cpu_ms"]
    assert list(read_table(GOLDEN, ["v100_ms"]).columns) == ["v100_ms"]
    assert {BLOCK_KINDS[kind] for kind in np.unique(table.shapes.kind) if kind >= 0} == {"attention", "feed_forward"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("192,2,4-8,2-3,1,nan", "row 3: phone_ms must be a number above zero, not 'nan'"),
        ("192,2,4-8,2-3,1,0", "row 3: phone_ms must be a number above zero"),
        ("192,2,4-8,2-3,1,", "row 3: phone_ms must be a value"),
        ("192,2,4-8,2-3,1", "row 3: phone_ms must be a value"),
        ("192,2,4-8-4,2-3,1,5", "row 3: n_head must be 2 values joined by -, one a layer"),
        ("192,2,4-8,2,1,5", "row 3: mlp_ratio must be 2 values"),
        ("192,2,4-x,2-3,1,5", "row 3: n_head must be a whole number"),
        ("0,2,4-8,2-3,1,5", "row 3: embed_dim must be a whole number from 1"),
        ("192,2,4-8,2--3,1,5", "row 3: mlp_ratio must be 2 values"),
        ("192,2,4-8,2-3,yes,5", "row 3: bias must be 0 or 1"),
    ],
)
def test_what_is_wrong_is_named_by_row_and_field(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_table(written(tmp_path, HEAD, ROW, row))
    assert message in caught.value.detail
    assert caught.value.field.startswith("rows.3.")


def test_missing_columns_rows_and_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="column bias is missing; it has embed_dim, n_layer"):
        read_table(written(tmp_path, "embed_dim,n_layer,n_head,mlp_ratio,ms", "192,1,4,2,5"))
    with pytest.raises(InvalidInput, match="column tablet_ms is missing"):
        read_table(written(tmp_path, HEAD, ROW), ["tablet_ms"])
    with pytest.raises(InvalidInput, match="no rows below the header"):
        read_table(written(tmp_path, HEAD))
    with pytest.raises(InvalidInput, match="no column of latencies"):
        read_table(written(tmp_path, "embed_dim,n_layer,n_head,mlp_ratio,bias", "192,1,4,2,1"))
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"embed_dim")[:-6])
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_table(tmp_path / "cut.csv.gz")
    (tmp_path / "damaged.csv.gz").write_bytes(gzip.compress(b"embed_dim" * 99)[:10] + b"\xff" * 20)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_table(tmp_path / "damaged.csv.gz")
    with pytest.raises(InvalidInput, match="cannot be read: field larger"):
        read_table(written(tmp_path, HEAD, ROW + "1" * 200_000))


def test_a_spread_choice_covers_the_table_and_is_the_same_each_time() -> None:
    shapes = read_table(GOLDEN).shapes
    chosen = spread(shapes, PROTOCOL, 12, 3)
    assert len(set(chosen.tolist())) == 12
    assert (chosen == spread(shapes, PROTOCOL, 12, 3)).all()
    assert (chosen != spread(shapes, PROTOCOL, 12, 4)).any()
    assert set(shapes.d_model[chosen].tolist()) == {192, 384, 768}
    assert (spread(shapes.take(slice(0, 9)), PROTOCOL, 9, 0) == np.arange(9)).all()
    with pytest.raises(InvalidInput, match="count must be 1 to 9"):
        spread(shapes.take(slice(0, 9)), PROTOCOL, 10, 0)


def test_the_farthest_rows_leave_none_far_away() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 2))
    chosen = farthest(rows, 40)
    distance = np.min(np.linalg.norm(rows[:, None] - rows[chosen][None], axis=2), axis=1)
    assert len(set(chosen.tolist())) == 40
    assert distance.max() < 0.6
    assert len(farthest(rows[:5], 40)) == 5
