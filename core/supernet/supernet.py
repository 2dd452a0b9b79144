"""The supernet: every stack of attention, feed-forward and identity over one set of weights (PAR §2.1, figure 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor

from edgefront.core.nn.context import Context
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load
from edgefront.core.supernet.settings import CHOICES, LETTERS, SupernetSettings


class Supernet(LanguageModel):
    """X_l = Σ over i of m_l,i · F_i(X_l-1), of every layer l and i in attention, feed-forward, identity (PAR eq. 6).

    It is the language model of `(sf)x{layers}` with its blocks mixed rather than stacked: layer l has blocks 2l, its
    attention, and 2l + 1, its feed-forward. So parameters, initialisation, embedding, output, dropout and the state
    between passes are that model's. Every attention runs in every pass, so every layer's input is kept for its memory,
    whatever was chosen.

    A pass needs a mixture: `with supernet.mixed(m): supernet.step(…)`.
    """

    def __init__(self, settings: SupernetSettings, vocab_size: int) -> None:
        super().__init__(settings.architecture("sf" * settings.layers, vocab_size))
        self.settings = settings
        self._mixture: tuple[Tensor, ...] | None = None

    @contextmanager
    def mixed(self, mixture: Tensor) -> Iterator[None]:
        """Passes within take this mixture, [layers, 3] over `CHOICES`; gradients flow into it."""
        layers = self.settings.layers
        if mixture.shape != (layers, len(CHOICES)):
            raise ValueError(f"a mixture of this supernet is [{layers}, {len(CHOICES)}], not {list(mixture.shape)}")
        before, self._mixture = self._mixture, mixture.unbind(0)
        try:
            yield
        finally:
            self._mixture = before

    def _through_blocks(self, hidden: Tensor, context: Context) -> Tensor:
        if self._mixture is None:
            raise RuntimeError("a pass of a supernet needs a mixture: with supernet.mixed(m): …")
        for layer, weights in enumerate(self._mixture):
            attention, feed_forward, identity = weights.unbind(0)
            attended = self.blocks[2 * layer](hidden, f"blocks.{2 * layer}", context)
            fed = self.blocks[2 * layer + 1](hidden, f"blocks.{2 * layer + 1}", context)
            hidden = attention * attended + feed_forward * fed + identity * hidden
        return hidden

    def stack(self, letters: str) -> LanguageModel:
        """A model of its own with the weights of these blocks, one letter a layer (copies, on the same device)."""
        architecture = self.settings.architecture(letters, self.architecture.embedding.vocab_size)
        own = dict(self.named_parameters())
        model = LanguageModel(architecture)
        renamed = _supernet_name(letters)
        taken = {name: own[renamed(name)].detach().clone() for name, _ in model.named_parameters()}
        return load(model, taken)


def _supernet_name(letters: str) -> Callable[[str], str]:
    """Name of a parameter of the stack of these letters → its name in the supernet."""
    blocks = [2 * layer + LETTERS.index(letter) for layer, letter in enumerate(letters) if letter != "i"]

    def renamed(name: str) -> str:
        if not name.startswith("blocks."):
            return name
        _, index, rest = name.split(".", 2)
        return f"blocks.{blocks[int(index)]}.{rest}"

    return renamed
