"""What notebooks show: candidates as a data frame, jobs and frontiers as tables, a job drawn."""

from __future__ import annotations

import copy
import pickle

import pandas as pd
import pytest
from running_client import Running

from edgefront.core.common.errors import EdgefrontError, NotFound


def test_candidates_are_a_typed_table(running: Running) -> None:
    frame = running.client.candidates.to_pandas(running.job.id)
    listed = list(running.client.candidates.list(running.job.id))
    assert list(frame["id"]) == [candidate.id for candidate in listed]
    assert frame["memory_bytes"].dtype == pd.Int64Dtype()
    assert frame["on_frontier"].dtype == pd.BooleanDtype()
    assert str(frame["state"].dtype) == "category"
    assert str(frame["measured_at"].dtype).startswith("datetime64")
    for row, candidate in zip(frame.to_dict("records"), listed, strict=True):
        assert row["latency_ms"] == candidate.latency_ms
        assert candidate.predicted is not None
        assert row["predicted_perplexity_high"] == candidate.predicted.perplexity_high
        if candidate.role == "search":
            layers = [block["d_inner"] for block in candidate.architecture["blocks"] if "d_inner" in block]
            assert row["gene_d_model"] == candidate.architecture["d_model"]
            assert [row[f"gene_d_inner_{layer}"] for layer, _ in enumerate(layers, 1)] == layers
            assert row["gene_n_layer"] == len(layers)
    beyond = frame[frame["gene_n_layer"] < 3]
    assert not beyond.empty
    assert beyond["gene_d_inner_3"].isna().all()
    assert len(running.client.candidates.to_pandas(running.job.id, target="board")) == len(frame)


def test_a_job_draws_itself(running: Running) -> None:
    figure = running.job.plot()
    (axes,) = figure.axes
    assert "predicted perplexity" in axes.get_ylabel()
    drawn = {str(points.get_label()): len(points.get_offsets()) for points in axes.collections}
    assert drawn["frontier"] == running.job.targets[0].frontier_size
    assert drawn["the baseline, by layers"] == 3
    assert drawn["recommended"] == 1
    assert figure._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(NotFound, match="board"):
        running.job.plot("nope")
    assert copy.deepcopy(running.job) == running.job
    stored = pickle.dumps(running.job)
    assert b"efk_" not in stored
    with pytest.raises(EdgefrontError, match=r"client\.jobs\.get"):
        pickle.loads(stored).plot()


def test_tables_show_and_escape_what_they_are_of(running: Running) -> None:
    job = running.job.model_copy(update={"name": "<script>alert(1)</script>"})
    html = job._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert '<progress max="21" value="21">' in html
    assert job.targets[0].summary in html
    frontier = running.client.frontier(running.job.id)
    html = frontier._repr_html_()
    assert all(point.id in html for point in frontier.points)
