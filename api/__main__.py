"""`python -m edgefront.api`: the API of a team's server, configured by environment variables."""

from __future__ import annotations

import sys

from edgefront.api.serve import serve
from edgefront.core.errors import InvalidInput, Unavailable
from edgefront.core.services.settings import Settings


def main() -> int:
    try:
        serve(Settings())
    except (InvalidInput, Unavailable) as error:
        sys.stderr.write(f"{error.detail}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
