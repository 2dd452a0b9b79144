"""Random inputs: real tokens, and what an ONNX file declares."""

from __future__ import annotations

import numpy as np
import pytest
import subjects

from edgefront.agents.measuring.inputs import lookup_sizes, random_inputs, random_tokens
from edgefront.core.common.errors import MeasurementError
from edgefront.core.measurement.protocol import MeasurementProtocol

PROTOCOL = MeasurementProtocol(batch=2, sequence_length=24)


def test_tokens_are_random_within_the_vocabulary_and_the_seed_makes_them():
    tokens = random_tokens(PROTOCOL, 1000, seed=7)
    assert (tokens.shape, tokens.dtype) == ((2, 24), np.int64)
    assert 0 <= tokens.min() < tokens.max() < 1000
    assert len(np.unique(tokens)) > 30
    assert np.array_equal(tokens, random_tokens(PROTOCOL, 1000, seed=7))
    assert not np.array_equal(tokens, random_tokens(PROTOCOL, 1000, seed=8))
    assert tokens[0, :4].tolist() == random_tokens(PROTOCOL, 1000, seed=7)[0, :4].tolist()


def test_inputs_of_a_file_follow_its_declarations(tmp_path):
    path = subjects.lookup(tmp_path / "lookup.onnx", rows=11)
    assert lookup_sizes(path) == {"input_ids": 11}
    declared = [
        ("input_ids", "tensor(int32)", ("batch", "sequence")),
        ("attention_mask", "tensor(int32)", ("batch_size", "seq_len")),
        ("past_key", "tensor(float)", ("batch", 4, "past_sequence_length", 8)),
        ("image", "tensor(float16)", (None, 3, 5, 5)),
        ("flag", "tensor(bool)", ()),
        ("unknown", "tensor(int64)", ("x", "y")),
    ]
    arrays = random_inputs(path, declared, PROTOCOL, seed=0)
    assert arrays["input_ids"].shape == (2, 24)
    assert arrays["input_ids"].max() < 11
    assert len(np.unique(arrays["input_ids"])) > 5
    assert arrays["attention_mask"].all()
    assert arrays["past_key"].shape == (2, 4, 1, 8)
    assert arrays["image"].shape == (2, 3, 5, 5)
    assert arrays["image"].dtype == np.float16
    assert arrays["flag"] == np.True_
    assert arrays["unknown"].shape == (2, 1)
    assert set(np.unique(arrays["unknown"])) <= {0, 1}


def test_inputs_that_cannot_be_filled_are_unsupported(tmp_path):
    path = subjects.lookup(tmp_path / "lookup.onnx", rows=11)
    with pytest.raises(MeasurementError, match="words"):
        random_inputs(path, [("words", "tensor(string)", (1,))], PROTOCOL, seed=0)


def test_any_onnx_file_can_be_measured(tmp_path, measurer):
    path = subjects.lookup(tmp_path / "lookup.onnx", rows=11)
    result = measurer.measure(path, PROTOCOL, 0)
    assert result.outcome == "done", result.message
