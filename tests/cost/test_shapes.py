"""Many architectures as arrays, against their descriptions and against each alone."""

from __future__ import annotations

import numpy as np

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import space
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.cost.flops import cache_bytes, cache_size, macs
from edgefront.core.architectures.cost.passes import Pass
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.cost.weight_bytes import weight_bytes
from edgefront.core.architectures.models import named_models
from edgefront.core.common.number_formats import Quantisation

SPACES = ("lts-gpt2", "lts-transformer-xl", "hybrid", "par-32", "srupp")


def drawn(name: str, number: int = 12) -> list[Architecture]:
    rng, of = np.random.default_rng(7), space(name)
    return [of.architecture(of.sample(rng)) for _ in range(number)]


PASSES = (
    Pass(batch=2, tokens=7, memory=0, encoder_tokens=7),
    Pass(batch=1, tokens=5, memory=600, encoder_tokens=5, logits="last"),
    Pass(batch=3, tokens=1, memory=50, encoder_tokens=50, mode="decode"),
    Pass(batch=1, tokens=9, encoder_tokens=9, mode="prefill", logits="none"),
)


def test_rows_of_a_batch_are_counted_as_each_alone() -> None:
    """Of any length, kind and positions, with and without a source."""
    architectures = [named_model.architecture for named_model in named_models().values()]
    architectures += [one for name in SPACES for one in drawn(name, 3)]
    shapes, alone = Shapes.of(architectures), [Shapes.of([architecture]) for architecture in architectures]
    for run in PASSES:
        assert macs(shapes, run).tolist() == [macs(one, run)[0] for one in alone]
        found = cache_bytes(cache_size(shapes, run.batch, run.memory, run.encoder_tokens), 2, None)
        assert found.tolist() == [
            cache_bytes(cache_size(one, run.batch, run.memory, run.encoder_tokens), 2, None)[0] for one in alone
        ]
    quantisations: tuple[Quantisation, ...] = ("full", "int8", "int4", "q8_0", "q4_k_m", "q5_k_m", "q6_k", "iq4_nl")
    for quantisation in quantisations:
        found = weight_bytes(shapes, 4, quantisation, 64)
        assert found.tolist() == [weight_bytes(one, 4, quantisation, 64)[0] for one in alone]


def test_the_largest_model_is_counted_exactly() -> None:
    """Its parameters are below 2⁶³, its products far above."""
    widest = 1 << 16
    attention = {"kind": "attention", "n_head": widest, "d_head": widest, "bias": "none"}
    one = Architecture.parse(
        {"d_model": widest, "embedding": {"vocab_size": 2}, "positions": {"kind": "none"}, "blocks": [attention] * 1024}
    )
    maps = 4 * widest**3
    assert Shapes.of([one]).parameters[0].tolist() == [maps + 2 * widest] * 1024
    found = costs(one, CostOptions(batch=widest, sequence_length=1 << 20, logits="none", dtype="float64"))
    assert found.decoder_parameters == 1024 * (maps + 2 * widest) + 2 * widest
    assert found.weight_bytes == 8 * found.total_parameters > 1 << 63
    assert found.flops == 2 * 1024 * widest * (1 << 20) * (maps + 2 * (1 << 20) * widest**2)
    assert found.state_bytes == 8 * 2 * 1024 * widest * (1 << 20) * widest**2


def test_rows_of_different_spaces_together() -> None:
    parts = [Shapes.of(drawn(name, 3)) for name in SPACES]
    together = Shapes.concatenate(parts)
    whole = Shapes.of([one for name in SPACES for one in drawn(name, 3)])
    for name in vars(whole):
        np.testing.assert_array_equal(getattr(together, name), getattr(whole, name))
        assert getattr(together, name).dtype == getattr(whole, name).dtype
    picked = together.take([4, 0])
    assert picked.decoder_parameters.tolist() == whole.decoder_parameters[[4, 0]].tolist()
    assert len(together.take(together.d_model > 10**6)) == 0
    assert len(Shapes.of([])) == len(Shapes.concatenate([])) == 0
