"""The catalogue: search spaces and named models, as data."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.errors import ArchitectureError, NotFound, SpaceError
from core.spaces.architecture import Architecture, Attention, Embedding, FeedForward, Positions
from core.spaces.lts import LTS_GPT2, LTS_OPT
from core.spaces.space import SearchSpace

MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class NamedModel:
    """A published model under a name that people know."""

    name: str
    source: str
    architecture: Architecture


def spaces() -> dict[str, SearchSpace]:
    """Every search space by name."""
    return {space.name: space for space in (LTS_GPT2, LTS_OPT)}


def space(name: str) -> SearchSpace:
    """The search space of this name; `SpaceError` lists those that there are."""
    known = spaces()
    if name not in known:
        allowed = ", ".join(known)
        raise SpaceError(f"no search space {name!r}; there are {allowed}", field="name", value=name, allowed=allowed)
    return known[name]


def named_models() -> dict[str, NamedModel]:
    """Every named model by name."""
    return {model.name: model for model in _MODELS}


def named_model(name: str) -> NamedModel:
    """The named model; `NotFound` lists those that there are."""
    known = named_models()
    if name not in known:
        raise NotFound(f"no model named {name!r}; there are {', '.join(known)}")
    return known[name]


def resolve(file_or_name: str) -> Architecture:
    """An architecture from a JSON file or the name of a catalogued model; a name goes before a file called alike.

    Raises `NotFound` if it is neither, `ArchitectureError` if the file does not describe an architecture.
    """
    known = named_models()
    if file_or_name in known:
        return known[file_or_name].architecture
    if not os.path.isfile(file_or_name):  # Path.is_file raises on names that no file can have
        raise NotFound(f"{file_or_name!r} is neither a file nor a named model; the names are {', '.join(known)}")
    path = Path(file_or_name)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ArchitectureError(
                f"{file_or_name} holds {path.stat().st_size} bytes; a description has at most {MAX_FILE_BYTES}",
                value=path.stat().st_size,
                allowed=f"at most {MAX_FILE_BYTES} bytes",
            )
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ArchitectureError(f"{file_or_name} is not UTF-8 text", allowed="a JSON file") from None
    except OSError as error:
        raise NotFound(f"{file_or_name} cannot be read: {error.strerror}") from None
    return Architecture.parse(text)


def _decoder(
    n_layer: int,
    d_model: int,
    n_head: int,
    d_inner: int,
    embedding: Embedding,
    positions: Positions,
    activation: Literal["gelu", "gelu_tanh", "relu"],
) -> Architecture:
    layer = (Attention(n_head=n_head), FeedForward(d_inner=d_inner))
    return Architecture(
        d_model=d_model, positions=positions, activation=activation, embedding=embedding, blocks=layer * n_layer
    )


def _gpt2(name: str, n_layer: int, d_model: int, n_head: int, source: str) -> NamedModel:
    vocabulary, positions = Embedding(vocab_size=50257), Positions(length=1024)
    return NamedModel(name, source, _decoder(n_layer, d_model, n_head, 4 * d_model, vocabulary, positions, "gelu_tanh"))


def _opt(name: str, n_layer: int, d_model: int, n_head: int, source: str) -> NamedModel:
    vocabulary, positions = Embedding(vocab_size=50272), Positions(length=2048, offset=2)
    return NamedModel(name, source, _decoder(n_layer, d_model, n_head, 4 * d_model, vocabulary, positions, "relu"))


_GPT2 = "GPT-2 (Radford et al. 2019)"
_OPT = "OPT (arXiv 2205.01068)"
_MODELS = (
    _gpt2("distilgpt2", 6, 768, 12, "DistilGPT2 (Sanh et al. 2019)"),
    _gpt2("gpt2-small", 12, 768, 12, _GPT2),
    _gpt2("gpt2-medium", 24, 1024, 16, _GPT2),
    _gpt2("gpt2-large", 36, 1280, 20, _GPT2),
    _gpt2("gpt2-xl", 48, 1600, 25, _GPT2),
    _opt("opt-125m", 12, 768, 12, _OPT),
    _opt("opt-1.3b", 24, 2048, 32, _OPT),
    NamedModel(
        "lts-gpt2-baseline",
        "LTS (arXiv 2203.02094) Tables 6 and 7: the baseline at 16 layers, with 8 heads (12 do not divide 1024)",
        LTS_GPT2.baselines([16])[0],
    ),
    # The published OPT-350M normalises after each block and projects from 512; LTS counted this one (Table 3).
    _opt("lts-opt-baseline", 24, 1024, 16, "LTS (arXiv 2203.02094) Table 3: OPT-350M as its authors built it"),
)
