"""Routes of the web pages: `/` (jobs), `/new`, `/jobs/{id}`, `/trainings`, `/trainings/{id}`, `/login`, `/static/…`.

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
from edgefront.api.web.assets import (
    Asset,
    own_address,
    own_assets,
    own_version,
    plotly_address,
    plotly_bundle,
    plotly_version,
)
from edgefront.core.errors import NotFound

KEEP_FOR_GOOD = "public, max-age=31536000, immutable"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src {styles}; img-src 'self' data: blob:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
STRICT_POLICY = _POLICY.format(styles="'self'")
# Plotly writes <style> elements and style attributes; it needs neither inline scripts nor eval.
PLOTLY_POLICY = _POLICY.format(styles="'self' 'unsafe-inline'")

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
_templates.globals.update(own=own_address, plotly=plotly_address)

router = APIRouter(include_in_schema=False)


@router.get("/")
def jobs_page(request: Request) -> Response:
    return _page(request, "jobs.html")


@router.get("/new")
def new_page(request: Request) -> Response:
    return _page(request, "new.html")


@router.get("/jobs/{job_id}")
def job_page(request: Request, job_id: str) -> Response:
    return _page(request, "job.html", policy=PLOTLY_POLICY, job_id=job_id)


@router.get("/trainings")
def trainings_page(request: Request) -> Response:
    return _page(request, "trainings.html")


@router.get("/trainings/{training_id}")
def training_page(request: Request, training_id: str) -> Response:
    return _page(request, "training.html", policy=PLOTLY_POLICY, training_id=training_id)


@router.get("/login")
def login_page() -> Response:
    return _render("login.html", STRICT_POLICY)


@router.api_route("/static/own/{version}/{path:path}", methods=["GET", "HEAD"])
def own_asset(request: Request, version: str, path: str) -> Response:
    asset = own_assets().get(path)
    if asset is None:
        raise NotFound(f"no such file: {path}")
    return _serve(request, asset, current=version == own_version())


@router.api_route("/static/plotly/{version}/plotly.min.js", methods=["GET", "HEAD"])
def plotly(request: Request, version: str) -> Response:
    return _serve(request, plotly_bundle(), current=version == plotly_version())


@router.get("/favicon.ico")
def favicon() -> Response:
    return RedirectResponse(own_address("icon.svg"), headers={"Cache-Control": "no-cache"})


def _page(request: Request, template: str, *, policy: str = STRICT_POLICY, **values: str) -> Response:
    # Browsers do not send a SameSite=Strict cookie after a link from another site; then the page's script checks.
    elsewhere = request.headers.get("sec-fetch-site") == "cross-site"
    if COOKIE not in request.cookies and not elsewhere:
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?next={quote(here, safe='')}", status_code=303, headers=PAGE_HEADERS)
    return _render(template, policy, **values)


def _render(template: str, policy: str, **values: str) -> Response:
    body = _templates.get_template(template).render(**values)
    return Response(body, media_type="text/html", headers={**PAGE_HEADERS, "Content-Security-Policy": policy})


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
    known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    if zipped:
        headers["Content-Encoding"] = "gzip"
    return Response(asset.compressed if zipped else asset.body, media_type=asset.media_type, headers=headers)
