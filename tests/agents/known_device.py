"""`python known_device.py FACTS ...`: the agent on a device whose facts are known, as `DeviceFacts` in a file.

To find them out takes an agent ten seconds of a core, most of it to load the libraries of every runtime.
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgefront.agents import loop
from edgefront.cli.main import main
from edgefront.core.schemas.agent import DeviceFacts

if __name__ == "__main__":
    facts = DeviceFacts.model_validate_json(Path(sys.argv.pop(1)).read_bytes())
    loop.probe = lambda *_: facts  # type: ignore[assignment]
    sys.argv.insert(1, "agent")
    main()
