"""What the spaces over Transformer-XL (Dai et al. 2019) have in common: WikiText-103's tokens and their clusters."""

from __future__ import annotations

from edgefront.core.spaces.base_space import Frame, Stock
from edgefront.core.spaces.embeddings_and_head import Embedding, RelativePositions

WIKITEXT_103 = Embedding(vocab_size=267_735, cutoffs=(19_997, 39_997, 199_997))
"""Word level, with the cut-offs of NVIDIA's code, which PAR, LTS and SRU++ use: the first cluster and its three rows
for the tails make 20,000. Whether `div` narrows the tails (1 in the Base models, 4 in the Large and in LTS) is said
by who uses it."""
UNSCALED_WIKITEXT_103 = WIKITEXT_103.model_copy(update={"scaled": False})
"""Not multiplied by √d_model, as in SRU++'s scripts."""

SHARED_BIASES = Frame(
    embedding=WIKITEXT_103, positions=RelativePositions(shared=True, clamp=400), activation="relu", norm="post"
)
"""The Base model as PAR timed it: one pair of biases u, v for all layers, which needs the same heads in all of them."""

OWN_BIASES = Frame(embedding=WIKITEXT_103, positions=RelativePositions(shared=False), activation="relu", norm="post")
"""The frame as LTS built it: u and v in each layer, so that the heads may differ."""

BASE = Stock(d_model=512, n_head=8, d_inner=2048)
"""Transformer-XL Base as PAR and LTS (Table 4) trained it: 16 layers of this make the published one."""
