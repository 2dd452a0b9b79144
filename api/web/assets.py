"""The pages' own scripts, styles and images, and those that installed packages bring: read once, kept in memory.
Every URL contains the version of its asset, so browsers can cache it forever.
"""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from markupsafe import Markup

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
_IMPORT = re.compile(r'^(?:import .*|\}) from "(\..*)";$', re.MULTILINE)


@dataclass(frozen=True)
class Asset:
    body: bytes
    media_type: str

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()[:32]

    @cached_property
    def compressed(self) -> bytes:
        """The body in gzip, without a time stamp, so that the bytes are the same in every process."""
        return gzip.compress(self.body, compresslevel=6, mtime=0)


@lru_cache(maxsize=1)
def own_assets() -> dict[str, Asset]:
    """Path below `static/` → asset."""
    return {
        path.relative_to(STATIC).as_posix(): Asset(path.read_bytes(), MEDIA_TYPES[path.suffix])
        for path in sorted(STATIC.rglob("*"))
        if path.suffix in MEDIA_TYPES
    }


@lru_cache(maxsize=1)
def own_version() -> str:
    """A hash over all of the pages' own assets, because their modules import each other by relative URLs."""
    whole = hashlib.sha256()
    for path, asset in own_assets().items():
        whole.update(f"{path}\0{asset.digest}\0".encode())
    return whole.hexdigest()[:16]


@dataclass(frozen=True)
class Packaged:
    """A file that a Python package ships for browsers."""

    distribution: str
    package: str
    path: str

    @property
    def version(self) -> str:
        return version(self.distribution)


PACKAGED = {
    "plotly.js": Packaged("plotly", "plotly", "package_data/plotly.min.js"),  # 5 MB, 1.5 MB in gzip
    "swagger-ui.js": Packaged("fastapi-offline", "fastapi_offline", "static/swagger-ui-bundle.js"),
    "swagger-ui.css": Packaged("fastapi-offline", "fastapi_offline", "static/swagger-ui.css"),
}


@lru_cache(maxsize=len(PACKAGED))
def packaged_asset(name: str) -> Asset:
    """The file of `PACKAGED` with this name."""
    asset = PACKAGED[name]
    return Asset((files(asset.package) / asset.path).read_bytes(), MEDIA_TYPES[Path(name).suffix])


@cache
def imported(path: str) -> tuple[str, ...]:
    """The modules that an own script imports, and those that they import: a browser would find them level by level."""
    names: dict[str, None] = {}
    waiting = [path]
    while waiting:
        module = waiting.pop()
        for relative in _IMPORT.findall(own_assets()[module].body.decode()):
            name = posixpath.normpath(posixpath.join(posixpath.dirname(module), relative))
            if name not in names:
                names[name] = None
                waiting.append(name)
    return tuple(names)


def own_address(path: str) -> str:
    """As of all addresses here, below the path below which a proxy serves the service."""
    return f"/static/own/{own_version()}/{path}"


def module_tags(root: str, path: str) -> Markup:
    """The elements that load an own script, and ask for all that it imports at once; `root`: ASGI's `root_path`."""
    preload, run = Markup('<link rel="modulepreload" href="{}">\n'), Markup('<script type="module" src="{}"></script>')
    preloads = Markup("").join(preload.format(root + own_address(name)) for name in imported(path))
    return preloads + run.format(root + own_address(path))


def packaged_address(name: str) -> str:
    return f"/static/packages/{PACKAGED[name].version}/{name}"
