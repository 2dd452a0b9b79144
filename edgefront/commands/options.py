"""Options and arguments that several commands have, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from edgefront.commands.completion import complete_job, complete_model, complete_space

# Help texts of the options of a measurement protocol, whose types differ between commands.
MODE = "Kind of pass: all tokens at once, the same returning the state, or one token after a state."
SEQUENCE_LENGTH = "Tokens of a pass. Default: 192; in decode 1."
MEMORY_LENGTH = (
    "Tokens before the pass, in the state or (mode forward) a segment memory. Default: in decode 192, else 0."
)
DTYPE = "Number format of weights, activations and state."
WEIGHTS = (
    "Of the linear layers of the blocks. int8: their inputs are quantised too, dynamically. int4: a scale per block."
)

# Of jobs and trainings ----------------------------------------------------------------------------------------------

ProtocolFields = Annotated[
    list[str] | None,
    typer.Option(
        "--protocol",
        metavar="FIELD=VALUE",
        help="Field of the measurement protocol: mode=decode, sequence_length=128, dtype=float16. May be repeated.",
    ),
]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.", autocompletion=complete_job)]
Space = Annotated[str, typer.Option(help="Search space.", autocompletion=complete_space)]
Narrow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GENE=VALUES", help="Restrict a gene to these values: n_layer=2..6, d_model=128..512:64, n_head=2,4."
    ),
]
MaxLatency = Annotated[float | None, typer.Option(help="Only models with at most this latency.")]
MaxMemory = Annotated[float | None, typer.Option(help="Only models with at most this peak memory (MiB).")]
DataOfService = Annotated[
    str | None, typer.Option(help="Data set of the service, by name or digest. Default: the recipe's.")
]
RecipeName = Annotated[str, typer.Option(help="Recipe by name.")]
RecipeValues = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override a field of the recipe: steps=500, optimizer.lr=0.001."),
]
Steps = Annotated[
    int | None, typer.Option(help="End after this many steps; the learning-rate schedule is shortened to them.")
]
Watch = Annotated[bool, typer.Option("--watch", help="Watch until it ends.")]
After = Annotated[int, typer.Option(help="With --json: only events after this number.")]
Newest = Annotated[int, typer.Option(min=1, help="Maximum number to list, the newest first.")]

# Of models ----------------------------------------------------------------------------------------------------------

Described = Annotated[
    str,
    typer.Argument(
        metavar="FILE_OR_NAME", help="An architecture as JSON, or a named model.", autocompletion=complete_model
    ),
]
Trained = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a trained model.")]
Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="Device to run on.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of CPU threads. A small model is fastest with 1.")]
ResultFile = Annotated[Path | None, typer.Option("--output", "-o", help="Also write the result to this JSON file.")]

# Of this machine ----------------------------------------------------------------------------------------------------

Cores = Annotated[
    str | None, typer.Option(metavar="LIST", help="Cores that measure, as in 2,4-6. Default: all of them.")
]
