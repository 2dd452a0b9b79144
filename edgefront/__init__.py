"""edgefront: finds the language model that fits a device.

from edgefront import Client

client = Client()  # the service that `edgefront up` runs here, or the one at EDGEFRONT_URL
for point in client.frontier("job_01J…", target="jetson").points:
    print(point.latency_ms, point.memory_bytes)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgefront.client.client import Client

__all__ = ["Client", "__version__"]


def __getattr__(name: str) -> Any:
    # Lazy: every process of the project imports this package, and few need the HTTP client.
    if name == "Client":
        from edgefront.client.client import Client

        return Client
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("edgefront-lm")
        except PackageNotFoundError:  # source tree without an installation
            return "0"
    raise AttributeError(f"module 'edgefront' has no attribute {name!r}")
