"""Browsers that ask for pages: who gets a page, and not a problem document, where there is nothing."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import Scope

from edgefront.api.http.root_path import own_path

_NO_PAGES = ("/v1", "/static", "/metrics")


def wants_page(scope: Scope) -> bool:
    """Whether a browser navigates here: a GET that accepts HTML, outside of the API and the static files."""
    path = own_path(scope)
    if scope["method"] != "GET" or any(path == root or path.startswith(f"{root}/") for root in _NO_PAGES):
        return False
    accepted = Headers(scope=scope).get("accept", "").lower()
    return any(part.split(";")[0].strip() == "text/html" for part in accepted.split(","))


def wants_missing_page(scope: Scope) -> bool:
    """Whether it navigates to an address that no route has: what it gets needs no key."""
    return wants_page(scope) and all(route.matches(scope)[0] is Match.NONE for route in scope["app"].routes)
