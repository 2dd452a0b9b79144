"""Exit codes of the `edgefront` command, which scripts rely on."""

from __future__ import annotations

from edgefront.core.common.errors import (
    Conflict,
    EdgefrontError,
    Forbidden,
    Gone,
    InvalidInput,
    NotFound,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from edgefront.core.common.processes.program import INTERRUPTED

OK = 0
ERROR = 1
USAGE = 2
NOT_FOUND = 3
NO_ACCESS = 4
SERVER_AWAY = 5
REFUSED = 6
NOTHING_FITS = 10
DISAGREES = 11
"""The constants from `OK` to `DISAGREES` are exit codes of the command line; 7 to 9 belong to `edgefront agent`."""

TABLE = (
    (OK, "done"),
    (ERROR, "failed: the message says what"),
    (USAGE, "wrong usage: an unknown command or option, a value of the wrong type"),
    (NOT_FOUND, "the job, candidate, device … does not exist, or no longer exists"),
    (NO_ACCESS, "no valid API key, or the key lacks the permission"),
    (SERVER_AWAY, "the server cannot be reached or is unavailable: try again"),
    (REFUSED, "the input is invalid, or the operation is not possible in the current state"),
    (NOTHING_FITS, "nothing that was measured is within the limits: the answer says what comes nearest"),
    (DISAGREES, "figures that were measured again do not agree with those of the report"),
    (INTERRUPTED, "interrupted (Ctrl-C)"),
)

_ERROR_CLASSES: dict[int, tuple[type[EdgefrontError], ...]] = {
    NOT_FOUND: (NotFound, Gone),
    NO_ACCESS: (Unauthenticated, Forbidden),
    SERVER_AWAY: (Unavailable, TooManyRequests),
    REFUSED: (InvalidInput, Conflict, TooLarge),
}


def exit_code(error: EdgefrontError) -> int:
    """Returns the exit code of an expected error."""
    return next((code for code, classes in _ERROR_CLASSES.items() if isinstance(error, classes)), ERROR)
