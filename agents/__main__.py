"""`python -m agents`."""

from __future__ import annotations

import sys

from agents.main import run

if __name__ == "__main__":
    sys.exit(run())
