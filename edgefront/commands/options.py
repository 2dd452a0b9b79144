"""Options and arguments that several commands have, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from edgefront.commands.completion import complete_job, complete_model, complete_space

# What the options of a measurement protocol say of themselves; what they take differs.
MODE = "What a pass is: all tokens at once, the same leaving a state to go on from, or one token after such a state."
SEQUENCE_LENGTH = "Tokens of a pass: 192, in decode 1."
MEMORY_LENGTH = "Tokens before them: in decode 192; with mode forward a segment memory, by default none."
DTYPE = "Of weights, activations and state."
WEIGHTS = "int8 quantises the linear maps of the blocks, and their inputs as they come."

# Of jobs and trainings ----------------------------------------------------------------------------------------------

JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.", autocompletion=complete_job)]
Space = Annotated[str, typer.Option(help="Search space.", autocompletion=complete_space)]
Narrow = Annotated[
    list[str] | None,
    typer.Option(metavar="GENE=VALUES", help="Only these values: n_layer=2..6, d_model=128..512:64, n_head=2,4."),
]
MaxLatency = Annotated[float | None, typer.Option(help="Only models at least so fast.")]
MaxMemory = Annotated[float | None, typer.Option(help="Only models with at most this peak (MiB).")]
DataOfService = Annotated[
    str | None, typer.Option(help="Data set of the service, by name or digest. Default: the recipe's.")
]
RecipeName = Annotated[str, typer.Option(help="Recipe by name.")]
RecipeValues = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Another value in the recipe: steps=500, optimizer.lr=0.001."),
]
Steps = Annotated[int | None, typer.Option(help="End after so many steps, the schedule shortened to them.")]
Watch = Annotated[bool, typer.Option("--watch", help="Stay and watch.")]
After = Annotated[int, typer.Option(help="With --json: only events behind this number.")]
Newest = Annotated[int, typer.Option(min=1, help="At most so many, the newest first.")]

# Of models ----------------------------------------------------------------------------------------------------------

Described = Annotated[
    str,
    typer.Argument(
        metavar="FILE_OR_NAME", help="An architecture as JSON, or a named model.", autocompletion=complete_model
    ),
]
Trained = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a trained model.")]
Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="Where it runs.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Of the CPU. A small model is fastest with 1.")]
ResultFile = Annotated[Path | None, typer.Option("--output", "-o", help="Also write the result to this JSON file.")]

# Of this machine ----------------------------------------------------------------------------------------------------

Cores = Annotated[
    str | None, typer.Option(metavar="LIST", help="Cores that measure, as in 2,4-6. Default: all of them.")
]
