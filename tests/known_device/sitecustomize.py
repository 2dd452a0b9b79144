"""On the path of a program (the fixture `known_device`): its agent reads the facts of its device from a file.

To find them out takes an agent ten seconds of a core, most of it to load the libraries of every runtime.
"""

import os
import sys
from pathlib import Path

if "agent" in sys.orig_argv:
    from edgefront.agents import loop
    from edgefront.core.schemas.agent import DeviceFacts

    facts = DeviceFacts.model_validate_json(Path(os.environ["EDGEFRONT_TEST_FACTS"]).read_bytes())
    loop.probe = lambda *_: facts  # type: ignore[assignment]
