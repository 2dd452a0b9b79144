"""Options and arguments that several commands have, each declared once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import typer

from edgefront.cli.commands.base import Identifies
from edgefront.core.common.number_formats import GgufFormat, GgufQuantisation, KvCache, NumberFormat
from edgefront.core.model_files.model_file import ModelFormat

WAYS = (
    "a named model, a Hub id of the catalogue, a description (JSON), the folder of a trained or a Hugging Face model, "
    "its config.json, a GGUF file"
)
"""The ways in which every command takes a model (`core.training.evaluation.given_model`)."""
MODEL_HELP = f"{WAYS[0].upper()}{WAYS[1:]}."

Explain = Annotated[
    bool,
    typer.Option("--explain", help="Also every model with its identifier, how sure the figures are, and all commands."),
]


@dataclass(frozen=True)
class PassLimitOptions:
    """Limits on the points of a frontier."""

    max_latency_ms: Annotated[float | None, typer.Option(help="Maximum latency of a model, in milliseconds.")] = None
    max_memory_mb: Annotated[float | None, typer.Option(help="Maximum peak memory of a model, in MB (10^6 bytes).")] = (
        None
    )


@dataclass(frozen=True)
class LimitOptions(PassLimitOptions):
    """The limits of a target, or on the points of a frontier; those on a generation too."""

    max_first_token_ms: Annotated[
        float | None,
        typer.Option(help="Maximum time from the prompt to the first token, in milliseconds (mode generate)."),
    ] = None
    max_token_ms: Annotated[
        float | None, typer.Option(help="Maximum time of each further token, in milliseconds (mode generate).")
    ] = None

    @property
    def limits(self) -> dict[str, float | None]:
        """Values for the fields of `core.schemas.jobs.Limits`."""
        return {
            "latency_ms": self.max_latency_ms,
            "memory_mb": self.max_memory_mb,
            "first_token_ms": self.max_first_token_ms,
            "token_ms": self.max_token_ms,
        }


@dataclass(frozen=True)
class PassOptions:
    """What is measured: a pass or a generation, and the number formats."""

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
        typer.Option(help="float32, bfloat16 or float16. Number format of weights, activations and state."),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(
            help="full, or a format. Of the linear layers of the blocks. int8: their inputs are quantised too, "
            f"dynamically. int4: a scale per block. {', '.join(get_args(GgufQuantisation))}: llamacpp's, of all "
            "matrices."
        ),
    ] = None
    kv_cache: Annotated[
        KvCache | None,
        typer.Option(help="Runtime llamacpp: what its cache of keys and values holds. Default: f16, llama.cpp's own."),
    ] = None

    def protocol_fields(self, **generation: int | str | None) -> dict[str, Any]:
        """Values for the fields of the measurement protocol that are given, here or as further options of a
        `generation`. Raises `ProtocolError` where the mode and the options of a generation do not go together.
        """
        from edgefront.client.requests.jobs import generation_fields

        lengths = {"sequence_length": self.sequence_length, "memory_length": self.memory_length}
        formats = {"dtype": self.dtype, "weights": self.weights, "kv_cache": self.kv_cache}
        given = {name: value for name, value in formats.items() if value is not None}
        return generation_fields(self.mode, lengths, prompt=self.prompt, new=self.new, **generation) | given


@dataclass(frozen=True)
class ProtocolOptions(PassOptions):
    """How a search measures."""

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
        """Values for the fields of the measurement protocol that are given."""
        return self.protocol_fields(context=self.context, latency=self.latency, when_busy=self.when_busy)


@dataclass(frozen=True)
class TrainingBudgetOptions:
    """How long a model is to be trained, which decides what perplexity is predicted for it."""

    train_tokens: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS",
            help="Tokens that a model will be trained on: 300M, 10B, 1e9. Predicted quality is of models trained so "
            "long, by a law that knows the training budget. Default: what the law says.",
        ),
    ] = None

    train_hours: Annotated[
        float | None,
        typer.Option(
            metavar="HOURS",
            help="Hours that a model will be trained on --trainer, instead of tokens: each is predicted for the tokens "
            "that it sees in them.",
        ),
    ] = None
    trainer: Annotated[
        str | None, typer.Option(metavar="WORKER", help="A worker whose pace is known, from `train workers`.")
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """`train_tokens`, `train_hours` and `trainer`, those that are given. `InvalidInput` for no count of tokens."""
        from edgefront.core.common.token_counts import parse_token_count

        tokens = None if self.train_tokens is None else parse_token_count(self.train_tokens)
        given = {"train_tokens": tokens, "train_hours": self.train_hours, "trainer": self.trainer}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def fields(self) -> dict[str, Any]:
        """Those of a request. `InvalidInput` where what is given does not go together."""
        from edgefront.core.schemas.jobs import TrainingBudget

        return TrainingBudget.of(**self.given).fields


# Of jobs and trainings ----------------------------------------------------------------------------------------------

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
_PART = "Its id, the first or last characters of it, or `last`."
JobId = Annotated[str, typer.Argument(metavar="JOB", help=_PART), Identifies("job")]
CandidateId = Annotated[
    str,
    typer.Argument(metavar="CANDIDATE", help=f"From `frontier`. {_PART}"),
    Identifies("candidate"),
]
TrainingId = Annotated[str, typer.Argument(metavar="TRAINING", help=_PART), Identifies("training")]
TrainingIds = Annotated[
    list[str],
    typer.Argument(metavar="TRAINING…", help=_PART),
    Identifies("training"),
]
DeviceName = Annotated[
    str,
    typer.Argument(metavar="DEVICE", help=f"Its name. Or: {_PART}"),
    Identifies("device"),
]
TokenId = Annotated[str, typer.Argument(metavar="TOKEN", help=_PART), Identifies("token")]
KeyId = Annotated[str, typer.Argument(metavar="KEY", help=_PART), Identifies("key")]


@dataclass(frozen=True)
class SpaceOptions:
    """Options that say where a search looks for models."""

    space: Annotated[str, typer.Option(help="Search space.")] = "lts-gpt2"
    narrow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GENE=VALUES",
            help="Restrict a gene to these values: n_layer=2..6, d_model=128..512:64, n_head=2,4.",
        ),
    ] = None

    @property
    def narrowed(self) -> dict[str, Any]:
        """The values of each gene that is restricted."""
        from edgefront.client.requests.jobs import narrowing

        return narrowing(self.narrow or [])


@dataclass(frozen=True)
class ModelSpaceOptions(SpaceOptions):
    """Options that say where a search looks for models, maybe around one."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help=f"Search around this model, which is the baseline: {WAYS}. The space is the one that has it, unless "
            "--space llama or lfm is given.",
        ),
    ] = None
    inherit: Annotated[
        bool,
        typer.Option(
            "--inherit",
            help="Search the parts of --model, which begin with its weights, by the study of its cuts (`inherit "
            "study`). The model is imported into the service.",
        ),
    ] = False


@dataclass(frozen=True)
class RecipeOptions:
    """Options that say on what data and how a model is trained."""

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
        """Values for the fields of `core.schemas.trainings.TrainingRequest`, without the budget."""
        from edgefront.client.requests.trainings import overrides

        return {
            "dataset": self.data,
            "recipe": self.recipe,
            "overrides": overrides(self.setting or []),
            "licence": self.licence,
        }


LawName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Quality law that predicts perplexity, from `quality list`. Default: the law of the models' family.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
Watch = Annotated[bool, typer.Option("--watch", help="Watch until it ends.")]
Newest = Annotated[int, typer.Option(min=1, max=1_000_000, help="Maximum number to list, the newest first.")]

# Of models ----------------------------------------------------------------------------------------------------------

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
InNumbers = Annotated[
    NumberFormat,
    typer.Option(
        "--numbers",
        "--weights",
        help="Of an ONNX file: float32, float16, bfloat16, or int8 and int4 for the blocks' linear layers. Of a GGUF "
        f"file: {', '.join(get_args(GgufFormat))}.",
    ),
]
Described = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help=MODEL_HELP,
    ),
]
Trained = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="The folder of a trained or a Hugging Face model, or a GGUF file of byte-level bpe."
    ),
]


@dataclass(frozen=True)
class MachineOptions:
    """Options that say where torch runs a model."""

    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Device to run on.")] = "cpu"
    threads: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Number of CPU threads. A small model is fastest with 1.")
    ] = None

    def use_threads(self) -> None:
        """Sets torch's number of threads; without `threads` torch's default stays."""
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)


# Of this machine ----------------------------------------------------------------------------------------------------

Cores = Annotated[
    str | None, typer.Option(metavar="LIST", help="Cores that measure, as in 2,4-6. Default: all of them.")
]
