"""Search spaces: sets of permitted architectures that can be sampled, mutated, crossed, counted and narrowed.

A space is a tuple of genes. A genome maps every gene to a value, or, if the gene is per layer, to a list with one value
for each layer up to the maximum depth. Genes of layers beyond `n_layer` stay in the genome, mutate and return when
`n_layer` grows. The identity of a candidate is its architecture, which has only the first `n_layer` layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_args

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Block
from edgefront.core.architectures.gene import Gene, Value, in_words
from edgefront.core.architectures.gguf import gguf_form
from edgefront.core.architectures.huggingface import to_config
from edgefront.core.common.errors import InvalidInput, SpaceError
from edgefront.core.common.validation import short

if TYPE_CHECKING:
    # The client and the command line list spaces without numpy; callers that sample pass a generator.
    import numpy as np

    from edgefront.core.architectures.operators.base import GenomeOperators

Genome = dict[str, Any]
Loader = Literal["transformers", "llamacpp"]
LOADS_IN = "loads_in"
"""Key of a narrowing, besides the genes, that names the loaders that must load every remaining architecture."""
_CHECKS: Mapping[Loader, Callable[[Architecture], Any]] = {"transformers": to_config, "llamacpp": gguf_form}
_TITLES: Mapping[Loader, str] = {"transformers": "transformers", "llamacpp": "llama.cpp"}
_Space = TypeVar("_Space", bound="SearchSpace")


@dataclass(frozen=True)
class SearchSpace(ABC):
    """A named set of architectures, described by genes.

    Subclasses define the architecture of a genome (`architecture`), the operators on genomes (`make_operators`), and
    how values that became impossible are removed (`_consistent`). Genes are in the order in which they are sampled,
    because the permitted values of a gene depend on earlier genes. The operators sample, mutate, cross and repair many
    genomes at once; one genome is a batch of one.
    """

    name: str
    title: str
    source: str
    gene_list: tuple[Gene, ...]
    caveat: str = field(default="", kw_only=True)
    """How the quality proxy misleads in this space, in a sentence or two; empty if no misleading case is known."""

    loads_in_part: ClassVar[bool] = False
    """Whether a job for one loader is limited to the architectures that the loader supports."""

    @property
    def model(self) -> Architecture | None:
        """Model from which the search starts, also the reference model; None if the space is not around a model."""
        return None

    # What a subclass defines -------------------------------------------------------------------------------------

    @abstractmethod
    def architecture(self, genome: Genome) -> Architecture:
        """Architecture that a genome of this space describes."""

    @abstractmethod
    def build(self, genome: Genome, blocks: Sequence[Block]) -> Architecture:
        """Builds the architecture with these blocks, and with d_model, embedding and output of the genome."""

    @abstractmethod
    def contains(self, architecture: Architecture) -> bool:
        """Whether a genome of this space describes this architecture."""

    @abstractmethod
    def size(self) -> int:
        """Exact number of architectures in the space."""

    @abstractmethod
    def enumerate(self) -> Iterator[Genome]:
        """Yields one genome for each architecture of the space, in a fixed order; for small spaces."""

    @abstractmethod
    def baselines(self, layers: Sequence[int] | None = None) -> tuple[Architecture, ...]:
        """Reference models: the stock model at these depths (default: 1 to the deepest), in a permitted shape."""

    @property
    def scores(self) -> Mapping[str, float] | None:
        """Digest of each architecture → published score; None for a space without published scores."""
        return None

    @property
    def example(self) -> Architecture:
        """Example of an architecture, which shows the properties that all architectures of the space have in common."""
        return self.baselines([1])[0]

    @abstractmethod
    def _consistent(self: _Space) -> _Space:
        """Returns this space without unusable gene values. Raises `SpaceError` if no architecture is left."""

    def loadable(self, loader: Loader) -> Mapping[str, Sequence[Value]]:
        """Gene → values to which the space must be narrowed for the loader to load every architecture."""
        return {}

    @abstractmethod
    def make_operators(self) -> GenomeOperators:
        """Creates the operators on genomes of this space (`operators`)."""

    # Narrowing ---------------------------------------------------------------------------------------------------

    def genes(self) -> dict[str, Any]:
        """Each gene as JSON: {min, max, step} or {values}, `per_layer`, and `options` if they differ from these."""
        return {gene.name: gene.describe() for gene in self.gene_list}

    def to_json(self) -> dict[str, Any]:
        """Converts the space to JSON; `size` is a decimal integer as text, because it can exceed 2^64."""
        return {
            "name": self.name,
            "title": self.title,
            "source": self.source,
            "caveat": self.caveat,
            "genes": self.genes(),
            "loads_in": list(self.loaders()),
            "size": str(self.size()),
        }

    def gene(self, name: str) -> Gene:
        """Returns the gene of this name. Raises `SpaceError` that lists the existing genes."""
        for gene in self.gene_list:
            if gene.name == name:
                return gene
        allowed = ", ".join(gene.name for gene in self.gene_list)
        raise SpaceError(f"{self.name} has no gene {name!r}; it has {allowed}", field=name, value=name, allowed=allowed)

    def narrow(self: _Space, changes: Mapping[str, Any]) -> _Space:
        """Narrows this space: each named gene has only the given values.

        The values of a gene are one value, a list of values, or {min, max, step}. Values that no remaining architecture
        can have (a d_model without a d_inner that fits) are removed too. `loads_in` names one or several `Loader` that
        must load every architecture. Raises `SpaceError` that names the gene.
        """
        if not isinstance(changes, Mapping):
            raise SpaceError(
                "narrow must be an object from gene to values", field="narrow", value=changes, allowed="object"
            )
        genes = {str(name): chosen for name, chosen in changes.items() if name != LOADS_IN}
        values = {name: self.gene(name).narrowed(chosen).values for name, chosen in genes.items()}
        narrowed = self._keeping(values)._consistent()
        for loader in _loaders(changes.get(LOADS_IN, [])):
            narrowed = narrowed._loading_in(loader)
        return narrowed

    def loaders(self) -> tuple[Loader, ...]:
        """Loaders that can load at least some of this space's architectures."""
        loaders = []
        for loader in get_args(Loader):
            try:
                self._loading_in(loader)
            except SpaceError:
                continue
            loaders.append(loader)
        return tuple(loaders)

    def limited_to(self, loader: Loader) -> dict[str, tuple[Value, ...]]:
        """Gene → values that this loader loads; only for genes that also have other values.

        Raises `SpaceError` that names a gene without a loadable value.
        """
        limited: dict[str, tuple[Value, ...]] = {}
        for name, loads in self.loadable(loader).items():
            gene = self.gene(name)
            left = tuple(value for value in gene.values if value in loads)
            # A gene without a loadable value may take other options: `layers` becomes "alike".
            left = left or tuple(value for value in gene.options if value in loads)
            if not left:
                allowed = in_words(loads) if loads else "nothing that fits the other genes"
                raise SpaceError(
                    f"{name}: {_TITLES[loader]} loads {allowed} only, not {in_words(gene.values)}",
                    field=name,
                    value=list(gene.values),
                    allowed=allowed,
                )
            if set(left) != set(gene.values):
                limited[name] = left
        return limited

    def _loading_in(self: _Space, loader: Loader) -> _Space:
        part = self._keeping(self.limited_to(loader))._consistent()
        try:
            _CHECKS[loader](part.architecture(next(part.enumerate())))  # all others are like the first
        except InvalidInput as error:
            raise SpaceError(
                f"{_TITLES[loader]} loads no architecture of {self.name}: {error.detail}",
                field=LOADS_IN,
                value=loader,
                allowed="a space with this loader in the output of `edgefront space show`",
            ) from None
        return part

    def _keeping(self: _Space, left: Mapping[str, Collection[Value]]) -> _Space:
        """Returns this space with each gene in `left` limited to the values there; does not call `_consistent`."""
        kept = {name: self.gene(name).keeping(values) for name, values in left.items()}
        return replace(self, gene_list=tuple(kept.get(gene.name, gene) for gene in self.gene_list))

    # Genomes -----------------------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Number of layers for which a genome has values: the space's maximum depth."""
        return 1

    @cached_property
    def operators(self) -> GenomeOperators:
        """Operators that sample, mutate, cross and repair many genomes at once."""
        return self.make_operators()

    def sample(self, rng: np.random.Generator) -> Genome:
        """Samples a genome, each value uniform over the values permitted given earlier values (LTS §3)."""
        return self.samples(1, rng)[0]

    def samples(self, count: int, rng: np.random.Generator) -> list[Genome]:
        """Samples `count` genomes, like `sample` but faster."""
        return self.operators.decode(self.operators.sample(count, rng))

    def repair(self, genome: Genome) -> Genome:
        """Nearest genome of this space: each forbidden value moves to the nearest permitted value, the smaller of two,
        or to the first permitted value if the forbidden value is not a number.
        """
        return self.operators.decode(self.operators.encode([genome]))[0]


def _loaders(loads_in: Any) -> list[Loader]:
    chosen = list(loads_in) if isinstance(loads_in, list | tuple) else [loads_in]
    for loader in chosen:
        if loader not in get_args(Loader):
            allowed = ", ".join(get_args(Loader))
            raise SpaceError(
                f"{LOADS_IN} cannot be {short(loader)}; allowed: {allowed}",
                field=LOADS_IN,
                value=loader,
                allowed=allowed,
            )
    return chosen
