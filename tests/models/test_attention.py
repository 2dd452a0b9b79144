"""Attention blocks against the equations, one query and one key at a time, and what masks must not change."""

from __future__ import annotations

import numpy as np
import torch
from descriptions import descriptions
from hypothesis import given
from hypothesis import strategies as st
from passes import in_torch, inputs, lively_model, masks

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.nn.blocks.attention import shifted


def test_scores_of_distances_are_the_papers_relative_shift() -> None:
    """Dai et al. 2019, appendix B: pad by a column, fold, drop the first row; equal up to the diagonal."""
    sequence, keys = 4, 7
    by_distance = torch.randn(2, 3, sequence, keys + 1, generator=torch.Generator().manual_seed(0))
    rows = by_distance[..., 1:]  # of the distances keys - 1 … 0
    padded = torch.cat((torch.zeros(2, 3, sequence, 1), rows), 3)
    expected = padded.reshape(2, 3, keys + 1, sequence)[:, :, 1:].reshape(2, 3, sequence, keys)
    seen = torch.arange(keys) <= torch.arange(sequence).unsqueeze(1) + keys - sequence
    torch.testing.assert_close(shifted(by_distance)[..., seen], expected[..., seen], rtol=0, atol=0)


@given(descriptions(over_vocabulary=True, source=False), st.data())
def test_padding_changes_nothing_for_real_tokens(model: Architecture, data: st.DataObject) -> None:
    """A padded row gives its real tokens what a batch of them alone gives; only places count where they lie."""
    sequence, real = 7, data.draw(st.integers(1, 7))
    twin, given = lively_model(model), inputs(model, 2, sequence)
    mask = np.arange(sequence)[None] < np.array([[real], [sequence]])
    padded = in_torch(twin, {**given, "mask": mask})
    alone = in_torch(twin, {name: value[:1, :real] for name, value in given.items()})
    np.testing.assert_allclose(padded[:1, :real], alone, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(padded[1:], in_torch(twin, given)[1:], rtol=1e-9, atol=1e-9)


@given(descriptions(over_vocabulary=True), st.data())
def test_the_values_of_padded_tokens_do_not_matter(model: Architecture, data: st.DataObject) -> None:
    twin, given, others = lively_model(model), inputs(model, 3, 6), {}
    mask, changed = np.ones((3, 6), bool), dict(given)
    which = data.draw(st.sampled_from(["mask", "source_mask", "both"]) if model.source else st.just("mask"))
    if which != "source_mask":
        mask = others["mask"] = masks(data.draw, 3, 6)
        other = (given["tokens"] + 1) % model.embedding.vocab_size
        changed["tokens"] = np.where(mask, given["tokens"], other)
    if which != "mask":
        others["source_mask"] = masks(data.draw, 3, 5)
        other = (given["source_tokens"] + 1) % model.source.embedding.vocab_size
        changed["source_tokens"] = np.where(others["source_mask"], given["source_tokens"], other)
    first, second = in_torch(twin, {**given, **others}), in_torch(twin, {**changed, **others})
    assert np.isfinite(first[mask]).all()
    np.testing.assert_allclose(first[mask], second[mask], rtol=1e-9, atol=1e-9)


@given(descriptions(causal=True, source=True, over_vocabulary=True), st.data())
def test_a_padded_source_stays_masked_in_later_steps(model: Architecture, data: st.DataObject) -> None:
    twin, given = lively_model(model), inputs(model, 2, 6, segments=False)
    source_mask = masks(data.draw, 2, 5)
    expected = in_torch(twin, {**given, "source_mask": source_mask})
    mask, tokens = torch.from_numpy(source_mask), torch.from_numpy(given["tokens"])
    for form in ("cache", "memory"):
        with torch.inference_mode():
            source = torch.from_numpy(given["source_tokens"])
            first, state = twin(tokens[:, :4], cache=twin.init_cache(2, form), source=source, source_mask=mask)
            second, _ = twin(tokens[:, 4:], cache=state, source_mask=mask)
        np.testing.assert_allclose(torch.cat((first, second), 1).numpy(), expected, rtol=1e-9, atol=1e-9)
