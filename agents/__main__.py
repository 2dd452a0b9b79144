"""`python -m edgefront.agents`."""

from __future__ import annotations

import sys

from edgefront.agents.main import run

if __name__ == "__main__":
    sys.exit(run())
