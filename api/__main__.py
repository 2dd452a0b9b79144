"""`python -m api`: the API of a team's server, by the settings in the environment."""

from __future__ import annotations

import sys

from api.serve import serve
from core.errors import InvalidInput, Unavailable
from core.services.settings import Settings


def main() -> int:
    try:
        serve(Settings())
    except (InvalidInput, Unavailable) as error:
        sys.stderr.write(f"{error.detail}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
