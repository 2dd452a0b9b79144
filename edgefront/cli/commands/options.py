"""Options and arguments that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import typer

from edgefront.cli.session import Identifies
from edgefront.core.architectures.cost.passes import Logits
from edgefront.core.common.number_formats import GgufFormat, GgufQuantisation, KvCache, NumberFormat
from edgefront.core.common.units import parse_token_count
from edgefront.core.model_files.model_file import ModelFormat

MODEL_FORMS = (
    "a named model, a Hub id of the catalogue, a description (JSON), the folder of a trained or a Hugging Face model, "
    "its config.json, a GGUF file"
)
"""The forms of a MODEL argument (`core.training.evaluation.given_model`)."""
MODEL_HELP = f"{MODEL_FORMS[0].upper()}{MODEL_FORMS[1:]}."

Explain = Annotated[
    bool,
    typer.Option("--explain", help="Also show every model with its identifier, the uncertainty, and all commands."),
]


@dataclass(frozen=True)
class PassLimitOptions:
    """Options for limits on a model's latency and peak memory."""

    max_latency_ms: Annotated[float | None, typer.Option(help="Maximum latency of a model, in milliseconds.")] = None
    max_memory_mb: Annotated[float | None, typer.Option(help="Maximum peak memory of a model, in MB (10^6 bytes).")] = (
        None
    )


@dataclass(frozen=True)
class LimitOptions(PassLimitOptions):
    """Options for limits on a model's latency, peak memory and times of a generation."""

    max_first_token_ms: Annotated[
        float | None,
        typer.Option(help="Maximum time from the prompt to the first token, in milliseconds (mode generate)."),
    ] = None
    max_token_ms: Annotated[
        float | None, typer.Option(help="Maximum time of each further token, in milliseconds (mode generate).")
    ] = None

    @property
    def limits(self) -> dict[str, float | None]:
        """Returns these options as fields of `core.schemas.jobs.Limits`."""
        return {
            "latency_ms": self.max_latency_ms,
            "memory_mb": self.max_memory_mb,
            "first_token_ms": self.max_first_token_ms,
            "token_ms": self.max_token_ms,
        }


@dataclass(frozen=True)
class PassOptions:
    """Options for the forward pass or generation that is measured, and for number formats."""

    mode: Annotated[
        str | None,
        typer.Option(
            help="forward, prefill, decode or generate: all tokens at once, the same returning the state, one token "
            "after a state, or a whole generation."
        ),
    ] = None
    sequence_length: Annotated[int | None, typer.Option(help="Tokens of a pass. Default: 192; in decode 1.")] = None
    memory_length: Annotated[
        int | None,
        typer.Option(
            help="Tokens before the pass, in the state or (mode forward) a segment memory. Default: in decode 192, "
            "else 0."
        ),
    ] = None
    prompt: Annotated[int | None, typer.Option(min=1, help="Mode generate: tokens of the prompt. Default: 192.")] = None
    new: Annotated[
        int | None,
        typer.Option(min=2, help="Mode generate: tokens that are generated, the first included. Default: 64."),
    ] = None
    dtype: Annotated[
        str | None,
        typer.Option(help="Number format of weights, activations and state: float32, bfloat16 or float16."),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(
            help="Number format of the blocks' linear layers: full (as --dtype), int8 (inputs are quantised "
            f"dynamically too) or int4 (one scale per block). llamacpp: {', '.join(get_args(GgufQuantisation))}, for "
            "all matrices."
        ),
    ] = None
    kv_cache: Annotated[
        KvCache | None,
        typer.Option(help="Runtime llamacpp: number format of the key/value cache. Default: f16."),
    ] = None

    def protocol_fields(self, **generation: int | str | None) -> dict[str, Any]:
        """Returns the fields of the measurement protocol that these options and the options of a `generation` set.
        Raises `ProtocolError` if an option of a generation is combined with another mode.
        """
        from edgefront.client.requests import generation_fields

        lengths = {"sequence_length": self.sequence_length, "memory_length": self.memory_length}
        formats = {"dtype": self.dtype, "weights": self.weights, "kv_cache": self.kv_cache}
        fields = generation_fields(self.mode, lengths, prompt=self.prompt, new=self.new, **generation)
        return fields | {name: value for name, value in formats.items() if value is not None}


@dataclass(frozen=True)
class ProtocolOptions(PassOptions):
    """Options for the measurement protocol of a search job."""

    context: Annotated[
        int | None, typer.Option(min=0, help="Mode generate: tokens in the state before the prompt. Default: 0.")
    ] = None
    latency: Annotated[
        str | None,
        typer.Option(
            help="Mode generate: the time that is the latency: total, first_token or token (each further one). "
            "Default: total."
        ),
    ] = None
    when_busy: Annotated[
        Literal["mark", "wait"] | None,
        typer.Option(
            help="On battery, in a power-saving mode, under other load or throttled: measure and mark the launch, or "
            "wait for better conditions first, up to five minutes. Default: mark.",
        ),
    ] = None

    @property
    def fields(self) -> dict[str, Any]:
        """Returns the fields of the measurement protocol that these options set."""
        fields = self.protocol_fields(context=self.context, latency=self.latency)
        return fields if self.when_busy is None else {**fields, "when_busy": self.when_busy}


@dataclass(frozen=True)
class TrainingBudgetOptions:
    """Options for the training budget that predictions of perplexity assume."""

    train_tokens: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS",
            help="Training tokens for which quality is predicted: 300M, 10B, 1e9. Needs a law that knows the training "
            "budget. Default: the law's own budget.",
        ),
    ] = None

    train_hours: Annotated[
        float | None,
        typer.Option(
            metavar="HOURS",
            help="Training hours on --trainer, instead of tokens: each model is predicted for the tokens that it sees "
            "in this time.",
        ),
    ] = None
    trainer: Annotated[
        str | None, typer.Option(metavar="WORKER", help="A worker whose pace is known, from `train workers`.")
    ] = None

    @property
    def values(self) -> dict[str, Any]:
        """Returns `train_tokens`, `train_hours` and `trainer` if set. Raises `InvalidInput` for a wrong token count."""
        tokens = None if self.train_tokens is None else parse_token_count(self.train_tokens)
        options = {"train_tokens": tokens, "train_hours": self.train_hours, "trainer": self.trainer}
        return {name: value for name, value in options.items() if value is not None}

    @property
    def fields(self) -> dict[str, Any]:
        """Returns the training budget as fields of a job request. Raises `InvalidInput` for conflicting options."""
        from edgefront.core.schemas.jobs import PredictionBudget

        return PredictionBudget.of(**self.values).fields


# Jobs and trainings -------------------------------------------------------------------------------------------------

Licence = Annotated[
    str | None,
    typer.Option(
        "--licence",
        "--license",
        metavar="NAME",
        help="Licence of the weights, for the model card: apache-2.0, cc-by-sa-4.0 … Default: not stated.",
    ),
]
ProtocolFields = Annotated[
    list[str] | None,
    typer.Option(
        "--protocol",
        metavar="FIELD=VALUE",
        help="Field of the measurement protocol: mode=decode, sequence_length=128, dtype=float16. May be repeated.",
    ),
]
_ID_HELP = "Its id, the first or last characters of it, or `last`."
JobId = Annotated[str, typer.Argument(metavar="JOB", help=_ID_HELP), Identifies("job")]
CandidateId = Annotated[
    str,
    typer.Argument(metavar="CANDIDATE", help=f"From `frontier`. {_ID_HELP}"),
    Identifies("candidate"),
]
TrainingId = Annotated[str, typer.Argument(metavar="TRAINING", help=_ID_HELP), Identifies("training")]
TrainingIds = Annotated[
    list[str],
    typer.Argument(metavar="TRAINING…", help=_ID_HELP),
    Identifies("training"),
]
DeviceName = Annotated[
    str,
    typer.Argument(metavar="DEVICE", help=f"Its name. Or: {_ID_HELP}"),
    Identifies("device"),
]
TokenId = Annotated[str, typer.Argument(metavar="TOKEN", help=_ID_HELP), Identifies("token")]
KeyId = Annotated[str, typer.Argument(metavar="KEY", help=_ID_HELP), Identifies("key")]


@dataclass(frozen=True)
class SpaceOptions:
    """Options for the search space, which may be built around a model."""

    space: Annotated[str, typer.Option(help="Search space.")] = "lts-gpt2"
    narrow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GENE=VALUES",
            help="Restrict a gene to these values: n_layer=2..6, d_model=128..512:64, n_head=2,4.",
        ),
    ] = None

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help=f"Search around this model, which is the baseline: {MODEL_FORMS}. Default space: the one that has it; "
            "--space may be llama or lfm.",
        ),
    ] = None
    inherit: Annotated[
        bool,
        typer.Option(
            "--inherit",
            help="Search the submodels of --model, which start with its weights; needs its pruning study (`inherit "
            "study`). The model is imported into the service.",
        ),
    ] = False

    @property
    def narrowed(self) -> dict[str, Any]:
        """Returns a mapping from each gene that these options restrict to the allowed values."""
        from edgefront.client.requests import parse_narrowing

        return parse_narrowing(self.narrow or [])


@dataclass(frozen=True)
class RecipeOptions:
    """Options for the data and the recipe of a training."""

    data: Annotated[
        str | None, typer.Option(help="Data set of the service, by name or digest. Default: the recipe's.")
    ] = None
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Recipe by name. Default: modern; quick for models with memory (Transformer-XL, SRU).",
        ),
    ] = None
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="Override a field of the recipe: steps=500, optimizer.lr=0.001."
        ),
    ] = None
    steps: Annotated[
        int | None, typer.Option(help="End after this many steps; the learning-rate schedule is shortened to them.")
    ] = None
    licence: Licence = None

    @property
    def fields(self) -> dict[str, Any]:
        """Returns these options as fields of `core.schemas.trainings.TrainingRequest`, without the training budget."""
        from edgefront.client.requests import parse_settings

        return {
            "dataset": self.data,
            "recipe": self.recipe,
            "overrides": parse_settings(self.setting or []),
            "licence": self.licence,
        }


LawName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Scaling law that predicts perplexity, from `quality list`. Default: the law of the models' family.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
Watch = Annotated[bool, typer.Option("--watch", help="Watch until it ends.")]
Newest = Annotated[int, typer.Option(min=1, max=1_000_000, help="Maximum number to list, the newest first.")]

# Models -------------------------------------------------------------------------------------------------------------

FileFormat = Annotated[
    ModelFormat,
    typer.Option(
        "--format",
        help="File format. onnx is a forward pass over whole sequences; onnx-prefill and onnx-decode generate text; "
        "onnx-generate does so alone, with its cache written in place; onnx-segment reads segment by segment with a "
        "memory; gguf is for llama.cpp; transformers is the folder that Hugging Face's from_pretrained loads, "
        "or a tar archive with it where --output ends in .tar or is a folder.",
    ),
]
Numbers = Annotated[
    NumberFormat | None,
    typer.Option(
        "--numbers",
        "--weights",
        help="Of an ONNX file: float32, float16, bfloat16, or int8 and int4 for the blocks' linear layers. Of a GGUF "
        f"file: {', '.join(get_args(GgufFormat))}.",
    ),
]
LogitsOption = Annotated[
    Logits | None,
    typer.Option(
        "--logits",
        help="Positions whose logits an ONNX file (onnx, onnx-segment) computes: last, all, or none, which gives the "
        "hidden states. Default: those that were measured; all, if none was.",
    ),
]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)]
TrainedModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="The folder of a trained or a Hugging Face model, or a GGUF file of byte-level bpe."
    ),
]


@dataclass(frozen=True)
class MachineOptions:
    """Options for the device and the number of CPU threads with which torch runs a model."""

    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Device to run on.")] = "cpu"
    threads: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Number of CPU threads. A small model is fastest with 1.")
    ] = None

    def use_threads(self) -> None:
        """Sets torch's number of threads if `threads` is set."""
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)


# This machine -------------------------------------------------------------------------------------------------------

Cores = Annotated[
    str | None, typer.Option(metavar="LIST", help="Cores that measure, as in 2,4-6. Default: all of them.")
]
