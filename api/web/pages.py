"""Routes of the web pages: `/`, `/new`, `/jobs`, `/jobs/{id}`, `/jobs/{id}/log`,
`/jobs/{id}/candidates/{id}`, `/compare`, `/trainings`, `/trainings/{id}`, `/devices`, `/devices/{id}`, `/docs` (of the
API), `/login`, `/static/…`; and the page at an address where there is none.

The pages contain no data: their scripts fetch it from `/v1` with the session cookie. So a page is not secret. Without a
cookie a browser is redirected to `/login`; an expired cookie is detected by the first response of `/v1`.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from edgefront.api.http.auth import COOKIE
from edgefront.api.http.browsers import wants_page
from edgefront.api.http.root_path import own_path
from edgefront.api.web.assets import (
    PACKAGED,
    Asset,
    module_tags,
    own_address,
    own_assets,
    own_version,
    packaged_address,
    packaged_asset,
)
from edgefront.api.web.terms import term, words
from edgefront.core.errors import NotFound

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

_templates = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined
)
_templates.globals.update(module=module_tags, own=own_address, packaged=packaged_address, term=term, words=words)

router = APIRouter(include_in_schema=False)


@router.get("/")
def home_page(request: Request) -> Response:
    return _page(request, "home.html")


@router.get("/jobs")
def jobs_page(request: Request) -> Response:
    return _page(request, "jobs.html")


@router.get("/new")
def new_page(request: Request) -> Response:
    return _page(request, "new.html")


@router.get("/jobs/{job_id}")
def job_page(request: Request, job_id: str) -> Response:
    return _page(request, "job.html", policy=INLINE_STYLES_POLICY, job_id=job_id)


@router.get("/jobs/{job_id}/log")
def job_log_page(request: Request, job_id: str) -> Response:
    return _page(request, "job_log.html", job_id=job_id)


@router.get("/jobs/{job_id}/candidates/{candidate_id}")
def candidate_page(request: Request, job_id: str, candidate_id: str) -> Response:
    return _page(request, "candidate.html", job_id=job_id, candidate_id=candidate_id)


@router.get("/compare")
def compare_page(request: Request) -> Response:
    return _page(request, "compare.html", policy=INLINE_STYLES_POLICY)


@router.get("/trainings")
def trainings_page(request: Request) -> Response:
    return _page(request, "trainings.html")


@router.get("/trainings/{training_id}")
def training_page(request: Request, training_id: str) -> Response:
    return _page(request, "training.html", policy=INLINE_STYLES_POLICY, training_id=training_id)


@router.get("/devices")
def devices_page(request: Request) -> Response:
    return _page(request, "devices.html")


@router.get("/devices/{device}")
def device_page(request: Request, device: str) -> Response:
    return _page(request, "device.html", device=device)


@router.get("/docs")
def docs_page(request: Request) -> Response:
    return _page(request, "docs.html", policy=INLINE_STYLES_POLICY)


@router.get("/login")
def login_page(request: Request) -> Response:
    return _render(request, "login.html", STRICT_POLICY)


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
    """Prepares what the first visitor would wait for: compiles the pages and compresses their scripts."""
    for template in _templates.list_templates():
        _templates.get_template(template)
    for asset in (*own_assets().values(), *map(packaged_asset, PACKAGED)):
        asset.compressed  # noqa: B018 - kept by the asset


def missing_page(request: Request) -> Response | None:
    """What a browser gets at an address where there is nothing; None for any other client."""
    if not wants_page(request.scope):
        return None
    return _render(request, "missing.html", STRICT_POLICY, 404, path=request.url.path[:MAX_SHOWN_PATH])


def _page(request: Request, template: str, *, policy: str = STRICT_POLICY, **values: str) -> Response:
    # Browsers do not send a SameSite=Strict cookie after a link from another site; then the page's script checks.
    elsewhere = request.headers.get("sec-fetch-site") == "cross-site"
    if COOKIE not in request.cookies and not elsewhere:
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?next={quote(here, safe='')}", status_code=303, headers=PAGE_HEADERS)
    return _render(request, template, policy, **values)


def _render(request: Request, template: str, policy: str, status: int = 200, /, **values: str) -> Response:
    values |= {"root": request.scope["root_path"], "here": own_path(request.scope)}
    body = _templates.get_template(template).render(**values)
    return Response(body, status, {**PAGE_HEADERS, "Content-Security-Policy": policy}, media_type="text/html")


def _serve(request: Request, asset: Asset, *, current: bool) -> Response:
    """The asset, gzipped if the browser accepts that. Only the URL of the current version may be cached forever."""
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
