"""`python -m edgefront` is the `edgefront` command."""

from __future__ import annotations

from edgefront.cli import main

if __name__ == "__main__":
    main()
