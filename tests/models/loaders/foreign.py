"""Reading another library's state dict: every entry by name, and nothing left over unnoticed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from edgefront.core.errors import InvalidInput
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, FeedForward

Weights = dict[str, Tensor]


class ForeignState:
    """A state dict, with or without the prefix of its wrapper (`transformer.` of a model with a head)."""

    def __init__(self, state: Mapping[str, Tensor], prefix: str = "") -> None:
        self._state = {name.removeprefix(prefix): value for name, value in state.items()}
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._state

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._state:
            raise InvalidInput(f"the state dict has no {name}", field=name, allowed="a state dict of this architecture")
        self._read.add(name)
        return self._state[name]

    def pair(self, ours: str, theirs: str) -> Weights:
        """Weight and bias of a linear layer or a norm."""
        return {f"{ours}.{part}": self[f"{theirs}.{part}"] for part in ("weight", "bias")}

    def joined(self, ours: str, theirs: Sequence[str]) -> Weights:
        """Weights and biases of several linear layers of one input, as one map with their rows in this order."""
        return {
            f"{ours}.{part}": torch.cat([self[f"{their}.{part}"] for their in theirs]) for part in ("weight", "bias")
        }

    def tied(self, copy: str, original: str) -> None:
        """A second name of one tensor may be missing, but must not hold anything else."""
        if copy in self and self[copy] is not self[original] and not torch.equal(self[copy], self[original]):
            raise InvalidInput(
                f"{copy} differs from {original}, but the architecture has one tensor for both",
                field=copy,
                allowed="the same values, or an architecture that does not tie them",
            )

    def finish(self, *without: str) -> None:
        """Refuses what was not read, except the entries that match one of these patterns in full."""
        for name in self._state.keys() - self._read:
            if not any(re.fullmatch(pattern, name) for pattern in without):
                raise InvalidInput(
                    f"{name} has no place in this architecture",
                    field=name,
                    allowed="a state dict of this architecture, with as many layers",
                )


def layers(architecture: Architecture, library: str) -> list[tuple[int, str, str]]:
    """(layer, prefix of its attention, prefix of its feed-forward) of a model that alternates the two."""
    kinds = [type(block) for block in architecture.blocks]
    count = len(kinds) // 2
    if kinds != [Attention, FeedForward] * count:
        raise InvalidInput(
            f"the layers of {library} are an attention block and a feed-forward block each",
            field="blocks",
            value=[block.kind for block in architecture.blocks],
            allowed="attention, feed_forward, attention, feed_forward, …",
        )
    return [(layer, f"blocks.{2 * layer}", f"blocks.{2 * layer + 1}") for layer in range(count)]


def check_output(architecture: Architecture, library: str, *kinds: str) -> None:
    """Refuses an output that the library's model does not have."""
    if architecture.output.kind not in kinds:
        raise InvalidInput(
            f"{library} has no output of kind {architecture.output.kind}",
            field="output.kind",
            value=architecture.output.kind,
            allowed=", ".join(kinds),
        )


def token_output(names: ForeignState, architecture: Architecture, head: str, table: str) -> Weights:
    """The table of an output over the vocabulary: its own, or the same values as the embedding's."""
    if not architecture.output.tied:
        return {"output.tables.0": names[head]}
    names.tied(head, table)
    return {}
