"""Serves the web pages, their scripts and styles, and the page for unknown addresses.

Pages contain no data and need no key: the scripts of the pages fetch data from `/v1` with the session cookie. Without a
cookie a browser is redirected to `/login`. The first response of `/v1` detects an expired cookie.

Assets (scripts, styles) of this project and of installed packages are read once and kept in memory. URLs of assets
contain a version, so browsers cache assets forever.
"""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from edgefront.api.http.auth import COOKIE, wants_page
from edgefront.api.http.root_path import own_path
from edgefront.core.common.errors import NotFound
from edgefront.core.schemas.published import DEFAULT_SCORES

MAX_SHOWN_PATH = 200
KEEP_FOR_GOOD = "public, max-age=31536000, immutable"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src {styles}; img-src 'self' data: blob:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
STRICT_POLICY = _POLICY.format(styles="'self'")
# Plotly and Swagger UI write <style> elements and style attributes; they need neither inline scripts nor eval.
INLINE_STYLES_POLICY = _POLICY.format(styles="'self' 'unsafe-inline'")

PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


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
        """The asset's content, gzipped without a time stamp, so that every process sends the same bytes."""
        return gzip.compress(self.body, compresslevel=6, mtime=0)


@lru_cache(maxsize=1)
def own_assets() -> dict[str, Asset]:
    """Returns the project's own assets (files in `static/`) as a mapping: path below `static/` → asset."""
    return {
        path.relative_to(STATIC).as_posix(): Asset(path.read_bytes(), MEDIA_TYPES[path.suffix])
        for path in sorted(STATIC.rglob("*"))
        if path.suffix in MEDIA_TYPES
    }


@lru_cache(maxsize=1)
def own_version() -> str:
    """Hash of all own assets. All assets share one version, because modules import each other by relative URLs."""
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
    """Returns the file of `PACKAGED` with this name."""
    asset = PACKAGED[name]
    return Asset((files(asset.package) / asset.path).read_bytes(), MEDIA_TYPES[Path(name).suffix])


@cache
def imported(path: str) -> tuple[str, ...]:
    """Returns the modules that a script imports, directly or indirectly, so that browsers can preload these modules."""
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
    """Returns the URL path of an asset of this project, without ASGI's `root_path`."""
    return f"/static/own/{own_version()}/{path}"


def module_tags(root: str, path: str) -> Markup:
    """Returns HTML elements that load a script and preload the modules that it imports. `root`: ASGI's `root_path`."""
    preload, run = Markup('<link rel="modulepreload" href="{}">\n'), Markup('<script type="module" src="{}"></script>')
    preloads = Markup("").join(preload.format(root + own_address(name)) for name in imported(path))
    return preloads + run.format(root + own_address(path))


def packaged_address(name: str) -> str:
    return f"/static/packages/{PACKAGED[name].version}/{name}"


WORDS: Mapping[str, str] = {
    "anchor": "a small fixed model that every device measures regularly; its history shows drift",
    "baseline": "the stock model of the space at several depths (layer-scaled, as the LTS paper calls it), or my "
    "model, from which a job starts. It is measured first, fixes the reference point, and is what every "
    "candidate is compared with",
    "frontier": "A candidate is on the frontier when no other candidate of its target dominates it: none is at least "
    "as good by the proxy, in latency and in peak memory, and better in one of them. So every gain along "
    "the frontier costs something: a faster model there is worse by the proxy or needs more memory.",
    "hypervolume": "Hypervolume is the part of the box between the ideal corner and the reference point that the "
    "frontier covers.",
    "interval": "The ± of a time is half of the interval in which another launch lies. Two candidates whose intervals "
    "overlap may change places.",
    "launch": "one fresh process that builds and times one architecture once",
    "measuring_share": "Measuring share is the part of the agent's wall time that was spent in warm-up and timed "
    "passes.",
    "out_of_bounds": "measured, kept and shown, but outside the job's limits",
    "passes": "what a latency is of: all tokens at once (forward), a prompt and the state after it (prefill), one "
    "further token (decode), or a whole generation (generate)",
    "peak_memory": "It is the high-water mark of the measuring process, not a file size and not a sum of allocations.",
    "perplexity": "how uncertain a model is of the next token of held-out text: the exponential of its mean loss. "
    "Lower is better",
    "proxy": "a cheap score used in place of quality",
    "quality_law": "what predicts perplexity from an architecture, learnt from trained models: with an interval, and "
    "where it holds",
    "quarantine": "of a device whose anchor failed or was off three times in a row, or on which five more models "
    "failed, or had a result that cannot be true, than were measured since: it gets no launches until its owner or an "
    "admin trusts it again",
    "speedup": "Speed-up and memory ratio compare a candidate with the baseline at equal decoder parameters: the "
    "baseline's figures are interpolated between its two nearest depths. 1.5 means that the baseline "
    "takes one and a half times as long, or as much memory.",
}
"""Explanations on the pages, in the sentences of `docs/concepts.md`, `frontiers.md` and `measuring.md`."""

words = {name: f"{text[:1].upper()}{text[1:].removesuffix('.')}." for name, text in WORDS.items()}
"""The explanations, each as a complete sentence."""


def term(shown: str, says: str) -> Markup:
    """Returns HTML that shows the word `shown`, and the explanation `says` on hover or (`shared/terms.js`) press."""
    return Markup('<button type="button" class="term" title="{}">{}</button>').format(says, shown)


_templates = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined
)
_templates.globals.update(
    module=module_tags, own=own_address, packaged=packaged_address, term=term, words=words, scores=DEFAULT_SCORES
)

router = APIRouter(include_in_schema=False)


PAGES = {
    "/": "home.html",
    "/new": "new.html",
    "/jobs": "jobs.html",
    "/jobs/{job_id}": "job.html",
    "/jobs/{job_id}/log": "job_log.html",
    "/jobs/{job_id}/candidates/{candidate_id}": "candidate.html",
    "/compare": "compare.html",
    "/trainings": "trainings.html",
    "/trainings/{training_id}": "training.html",
    "/devices": "devices.html",
    "/devices/{device}": "device.html",
    "/docs": "docs.html",
}
"""Path → template. Templates get the path's parameters."""
_WITH_INLINE_STYLES = {"job.html", "compare.html", "training.html", "docs.html"}


def _add_page(path: str, template: str) -> None:
    def page(request: Request) -> Response:
        # After a link from another site, browsers do not send a SameSite=Strict cookie: then the page's script checks.
        is_cross_site = request.headers.get("sec-fetch-site") == "cross-site"
        is_signed_in = COOKIE in request.cookies or hasattr(request.state, "signed_in")
        if not is_signed_in and not is_cross_site:
            address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"/login?next={quote(address, safe='')}", status_code=303, headers=PAGE_HEADERS)
        return _render(request, template, **request.path_params)

    router.add_api_route(path, page)


for _path, _template in PAGES.items():
    _add_page(_path, _template)


@router.get("/login")
def login_page(request: Request) -> Response:
    return _render(request, "login.html")


@router.api_route("/static/own/{version}/{path:path}", methods=["GET", "HEAD"])
def own_asset(request: Request, version: str, path: str) -> Response:
    asset = own_assets().get(path)
    if asset is None:
        raise NotFound(f"no such file: {path}")
    return _serve(request, asset, current=version == own_version())


@router.api_route("/static/packages/{version}/{name}", methods=["GET", "HEAD"])
def package_asset(request: Request, version: str, name: str) -> Response:
    if name not in PACKAGED:
        raise NotFound(f"no such file: {name}")
    return _serve(request, packaged_asset(name), current=version == PACKAGED[name].version)


@router.get("/favicon.ico")
def favicon() -> Response:
    return RedirectResponse(own_address("icon.svg"), headers={"Cache-Control": "no-cache"})


def warm_up() -> None:
    """Compiles the page templates and compresses the assets of pages before the first visitor arrives."""
    for template in _templates.list_templates():
        _templates.get_template(template)
    for asset in (*own_assets().values(), *map(packaged_asset, PACKAGED)):
        asset.compressed  # noqa: B018 - kept by the asset


def missing_page(request: Request) -> Response | None:
    """Returns the page for an unknown address; None for clients other than browsers."""
    if not wants_page(request.scope):
        return None
    return _render(request, "missing.html", 404, path=request.url.path[:MAX_SHOWN_PATH])


def _render(request: Request, template: str, status: int = 200, /, **values: str) -> Response:
    policy = INLINE_STYLES_POLICY if template in _WITH_INLINE_STYLES else STRICT_POLICY
    values |= {"root": request.scope["root_path"], "here": own_path(request.scope)}
    body = _templates.get_template(template).render(**values)
    return Response(body, status, {**PAGE_HEADERS, "Content-Security-Policy": policy}, media_type="text/html")


def _serve(request: Request, asset: Asset, *, current: bool) -> Response:
    """Returns a response with the asset, gzipped if accepted. Only URLs of the current version are cached forever."""
    zipped = "gzip" in request.headers.get("accept-encoding", "")
    etag = f'"{asset.digest}{"-gzip" if zipped else ""}"'
    headers = {
        "Cache-Control": KEEP_FOR_GOOD if current else "no-cache",
        "ETag": etag,
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    tags = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if etag in tags or "*" in tags:
        return Response(status_code=304, headers=headers)
    if zipped:
        headers["Content-Encoding"] = "gzip"
    return Response(asset.compressed if zipped else asset.body, media_type=asset.media_type, headers=headers)
