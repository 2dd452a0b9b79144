"""Recipes: the settings that define a training, together with an architecture and a data set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, model_validator

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Sru, Srupp
from edgefront.core.architectures.embeddings_and_head import (
    LearnedPositions,
    RelativePositions,
    SinusoidalPositions,
)
from edgefront.core.common.errors import InvalidInput, within
from edgefront.core.common.validation import checked
from edgefront.core.nn.dropout import NO_DROPOUT, Dropout

Task = Literal["streams", "sentences", "masked", "pairs"]
"""Task, which decides the batches: contiguous text, shuffled sentences, BERT's masked sequences, or translations."""
Precision = Literal["float32", "bfloat16", "float16"]
Order = Literal["contiguous", "shuffled"]
Scheme = Literal["gpt2", "opt", "transformer_xl", "transformer_xl_large", "srupp", "bert", "translation", "completep"]
"""Schemes of initialisation, described in `core.training.parametrisation`."""
WITHOUT_EFFECT = {"title", "source", "compile", "micro_rows", "checkpoint_every", "checkpoints", "evaluation"}
"""Fields of a recipe that do not change the trained weights."""

Count = Annotated[StrictInt, Field(ge=1, le=1 << 40)]
Length = Annotated[StrictInt, Field(ge=0, le=1 << 20)]
Rate = Annotated[StrictFloat, Field(ge=0, le=1e6, allow_inf_nan=False)]
Beta = Annotated[StrictFloat, Field(ge=0, lt=1)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Optimizer(_Section):
    """Optimiser and its settings.

    `adam`, `adamw` and `radam` are torch's optimisers (RAdam with decoupled weight decay). `lamb` is the LAMB of
    Transformer-XL's PyTorch recipe (no bias correction, ‖w‖ at most 10); `nvlamb` is BERT's LAMB (gradients are divided
    by the norm of all gradients).
    """

    name: Literal["adam", "adamw", "radam", "lamb", "nvlamb"] = "adamw"
    lr: Rate = 1e-3
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: Rate = 1e-8
    weight_decay: Rate = 0.0
    decays: Literal["all", "matrices"] = "matrices"
    """Parameters that have weight decay: all, or all except biases, norms and other vectors."""


class Parametrisation(_Section):
    """Reference shape for which `optimizer.lr` is given; the rate transfers to other shapes (µP, CompleteP).

    `core.training.parametrisation` derives initial values and learning rates of other shapes.
    """

    base_width: Count = 64
    """d_model of the reference shape."""
    base_blocks: Count = 4
    """Number of residual blocks of the reference shape. The default is two layers of attention and feed-forward."""
    embedding_lr: Annotated[StrictFloat, Field(gt=0, le=1e6, allow_inf_nan=False)] = 2.0
    """Learning rate of the embedding tables divided by `optimizer.lr`."""


class Schedule(_Section):
    """Linear warm-up from 0 to `lr` over `warmup` steps, then a decay to `min_lr` at the end of the last step.

    `cosine` spans the steps after the warm-up; `cosine_whole` has the shape of a cosine from step 0 (SRU++); `power` is
    (1 - step/steps)^power, steps counted from 1 (BERT); `inverse_sqrt` is lr·√(warmup/step); `constant` has no decay.
    See `core.training.optimizers`.
    """

    decay: Literal["cosine", "cosine_whole", "power", "inverse_sqrt", "constant"] = "cosine"
    warmup: Length = 0
    min_lr: Rate = 0.0
    power: Rate = 1.0


class EvaluationSettings(_Section):
    """Settings of evaluation: `segment` tokens at a time are read after `memory` past tokens (Transformer-XL §4.1)."""

    segment: Count = 64
    memory: Length = 0
    clamp: Count | None = None
    """Maximum relative distance; larger distances are clamped. None: no maximum."""
    same_length: StrictBool = False
    """Whether every token attends to the same number of keys, a window of `memory` + 1."""
    rows: Count = 16
    tokens: Count | None = None
    """Maximum number of validation tokens during training; the final evaluation reads the whole split."""
    every: Count = 1000
    """Number of steps between evaluations on the validation split; the final step is always evaluated."""


class Distil(_Section):
    """Settings of distillation from a teacher's logits (`core.training.distillation`).

    Source: Hinton et al. 2015 (arXiv 1503.02531) §2. The defaults use only the logits, because pruned models then
    recover best (Muralidharan et al. 2024, arXiv 2407.14679 §4.3, Sreenivas et al. 2024, arXiv 2408.11796 §3).
    """

    temperature: Annotated[StrictFloat, Field(gt=0, le=1000, allow_inf_nan=False)] = 1.0
    """Temperature by which both models' logits are divided; the divergence is multiplied by its square."""
    share: Annotated[StrictFloat, Field(gt=0, le=1)] = 1.0
    """Weight of the divergence KL(teacher || student) in the loss; the rest is the cross-entropy."""


class Recipe(_Section):
    """Settings of a training of `steps` steps, each on `rows` sequences of `segment` tokens over all GPUs together."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    title: Annotated[str, Field(max_length=200)] = ""
    source: Annotated[str, Field(max_length=300)] = ""
    """Paper, table or script from which the recipe is taken."""
    architecture: Annotated[str, Field(max_length=64)] | None = None
    """Named model for which the recipe was published."""
    dataset: Annotated[str, Field(max_length=64)] | None = None
    """Data set for which the recipe was published, and the default."""
    level: Literal["bytes", "characters", "words", "bpe"] | None = None
    """Kind of tokens of the data set, which selects one of several preparations."""
    task: Task = "streams"
    order: Order = "contiguous"
    """Order of the text in the task streams. contiguous: each row continues its previous segment. shuffled: segments
    in an order that is reshuffled each epoch, for models without memory."""
    steps: Count = 1000
    rows: Count = 16
    segment: Count = 128
    memory: Length = 0
    """Number of past tokens that training attends to, in models with memory; a recurrence's cell is always carried."""
    epoch_resets: StrictBool = False
    """Whether memory and cell are cleared at each epoch (SRU++)."""
    masked_fraction: Annotated[StrictFloat, Field(gt=0, lt=1)] = 0.15
    label_smoothing: Annotated[StrictFloat, Field(ge=0, lt=1)] = 0.0
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    clip: Rate | None = None
    """Maximum global gradient norm, at which gradients are clipped. None: no clipping."""
    dropout: Dropout = NO_DROPOUT
    initialisation: Scheme = "gpt2"
    parametrisation: Parametrisation | None = None
    """Settings of initialisation completep; null for other schemes."""
    distil: Distil | None = None
    """Settings of distillation from a teacher; requires task streams and memory 0."""
    precision: Precision = "float32"
    """Precision of forward and backward passes; weights and optimiser state stay float32."""
    compile: StrictBool = False
    micro_rows: Count | None = None
    """Number of rows of one forward pass on one GPU; gradients are accumulated. None: all rows, halved when memory
    runs out."""
    checkpoint_every: Count = 1000
    checkpoints: Annotated[StrictInt, Field(ge=1, le=100)] = 2
    """Number of latest checkpoints that are kept, besides the best on the validation split."""
    evaluation: EvaluationSettings = EvaluationSettings()

    @model_validator(mode="after")
    def _fits(self) -> Recipe:
        if self.schedule.warmup > self.steps:
            raise InvalidInput(
                f"schedule.warmup of {self.schedule.warmup} steps is longer than the training of {self.steps}",
                field="schedule.warmup",
                value=self.schedule.warmup,
                allowed=f"at most {self.steps}, or more steps",
            )
        if self.micro_rows is not None and self.micro_rows > self.rows:
            raise InvalidInput(
                f"micro_rows of {self.micro_rows} is more than rows of {self.rows}",
                field="micro_rows",
                value=self.micro_rows,
                allowed=f"at most {self.rows}",
            )
        carries_past = self.task != "streams" or self.memory > 0
        what = f"task {self.task}" if self.task != "streams" else f"a memory of {self.memory} tokens"
        if self.order == "shuffled" and carries_past:
            raise InvalidInput(
                f"order shuffled cannot be combined with {what}",
                field="order",
                value=self.order,
                allowed="contiguous; or shuffled with task streams and memory 0",
            )
        if self.distil is not None and carries_past:
            raise InvalidInput(
                f"distil cannot be combined with {what}, because a teacher reads each row by itself",
                field="distil",
                value=self.distil.model_dump(),
                allowed="null; or temperature and share with task streams and memory 0",
            )
        self._check_parametrisation()
        return self

    def _check_parametrisation(self) -> None:
        if (self.initialisation == "completep") != (self.parametrisation is not None):
            given = "no parametrisation" if self.parametrisation is None else f"initialisation {self.initialisation}"
            raise InvalidInput(
                f"initialisation completep and a parametrisation must be given together; this recipe has {given}",
                field="parametrisation",
                value=None if self.parametrisation is None else self.parametrisation.model_dump(),
                allowed="an object with initialisation completep, null with another initialisation",
            )
        if self.parametrisation is not None and self.optimizer.name not in ("adam", "adamw"):
            raise InvalidInput(
                f"a parametrisation requires adam or adamw, not {self.optimizer.name}",
                field="optimizer.name",
                value=self.optimizer.name,
                allowed="adam or adamw, or no parametrisation",
            )

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Recipe:
        """Reads a recipe from JSON. Raises `InvalidInput`, which names the first wrong field as `recipe.FIELD`."""
        with within("recipe"):
            return checked(cls, value)

    def effective(self) -> dict[str, Any]:
        """Returns fields that affect the weights, without default values, so new fields of `Recipe` change nothing."""
        excluded = WITHOUT_EFFECT | {"name", "architecture", "dataset", "level"}
        return self.model_dump(mode="json", exclude=excluded, exclude_defaults=True)

    def tokens_within(self, steps: int | None, tokens: int | None) -> int:
        """Returns the maximum number of tokens of a training with this budget of steps and tokens; None: no limit."""
        most = min(self.steps, steps or self.steps) * self.rows * self.segment
        return min(most, tokens or most)

    def overridden(self, overrides: Mapping[str, Any]) -> Recipe:
        """Returns the recipe with some fields replaced; a section (`optimizer`) needs only the fields that differ.

        Raises `InvalidInput`, which names an unknown or wrong field by its path in the overrides.
        """
        stored = self.model_dump(mode="json")
        for name, value in overrides.items():
            section = stored.get(name)
            stored[name] = {**section, **value} if isinstance(section, dict) and isinstance(value, Mapping) else value
        return checked(Recipe, stored)


_RELATIVE = "the attention of Transformer-XL", "transformer-xl"
_RECURRENCE = "the recurrence of SRU", "srupp"


def can_carry_past(architecture: Architecture) -> bool:
    """Whether the model can read a text of any length segment by segment, carrying a state of the past text.

    Models with absolute positions cannot, because cached keys and values keep the positions of their segment.
    """
    return (
        architecture.causal
        and architecture.source is None
        and not isinstance(architecture.positions, LearnedPositions | SinusoidalPositions)
    )


def predicts_next_token(architecture: Architecture) -> bool:
    """Whether the architecture is a language model: causal, with output over tokens, and without a source."""
    return architecture.causal and architecture.output.kind == "tokens" and architecture.source is None


def has_memory(architecture: Architecture) -> bool:
    """Whether the model has Transformer-XL's attention or SRU's recurrence, and so is trained on contiguous text."""
    return isinstance(architecture.positions, RelativePositions) or _is_recurrent(architecture)


def carries_state(architecture: Architecture, memory: int) -> bool:
    """Whether a training carries a memory or a recurrence's cell from segment to segment."""
    return can_carry_past(architecture) and (memory > 0 or _is_recurrent(architecture))


def _is_recurrent(architecture: Architecture) -> bool:
    return any(isinstance(block, Sru | Srupp) for block in architecture.blocks)


def check_task(architecture: Architecture, recipe: Recipe) -> None:
    """Raises `InvalidInput` if this recipe cannot train this architecture; the error names a field of the recipe."""
    kind, needs = architecture.output.kind, None
    if recipe.task == "masked":
        if architecture.causal or kind != "masked_tokens":
            needs = "an encoder whose output is masked_tokens"
    elif recipe.task == "pairs":
        if architecture.source is None or kind != "tokens":
            needs = "a model with a source whose output is tokens"
    elif not predicts_next_token(architecture):
        needs = "a causal model without a source whose output is tokens"
    if needs is not None:
        raise InvalidInput(
            f"recipe: {recipe.name} requires {needs}",
            field="recipe",
            value=recipe.name,
            allowed=f"a recipe whose task fits the architecture, or {needs}",
        )
    if recipe.order == "shuffled" and has_memory(architecture):
        what, family = _RECURRENCE if _is_recurrent(architecture) else _RELATIVE
        raise InvalidInput(
            f"recipe: {recipe.name} shuffles the segments of a text, but {what} continues from segment to segment",
            field="recipe",
            value=recipe.name,
            allowed=f"a recipe with contiguous text: quick or {family}-…",
        )
    if recipe.distil is not None and (architecture.embedding.cutoffs or _is_recurrent(architecture)):
        what = "an adaptive softmax (cutoffs)" if architecture.embedding.cutoffs else _RECURRENCE[0]
        raise InvalidInput(
            f"recipe: {recipe.name} trains with a teacher (distil), and the architecture has {what}",
            field="recipe",
            value=recipe.name,
            allowed="a recipe without distil, or a model without memory and cutoffs",
        )
    most, lengths = architecture.max_length, {"segment": recipe.segment}
    if recipe.task in ("streams", "sentences"):  # other tasks are evaluated on rows of the training's length
        lengths["evaluation.segment"] = recipe.evaluation.segment + recipe.evaluation.memory
    for name, length in lengths.items():
        if most is not None and length > most:
            raise InvalidInput(
                f"{name}: the recipe's segments of {length} tokens, memory included, are longer than the {most} "
                "positions of the architecture",
                field=name,
                value=length,
                allowed=f"at most {most}",
            )


MODERN, CONTIGUOUS = "modern", "quick"
RECOVERY = "distil"
"""Default recipe of a pruned model."""


def default_recipe(architectures: Iterable[Architecture]) -> str:
    """Default recipe for models that are trained together: `quick` if any model has memory, else `modern`."""
    return CONTIGUOUS if any(has_memory(architecture) for architecture in architectures) else MODERN
