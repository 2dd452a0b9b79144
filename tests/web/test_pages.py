"""The pages as files: who gets them, how long they may be kept, and what they forbid the browser."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest

from edgefront.api import web
from edgefront.api.web.pages import WORDS, own_address, own_assets, packaged_address
from edgefront.embedded.service import EmbeddedService

TEMPLATES = sorted((Path(web.__file__).parent / "templates").glob("*.html"))
JS = (Path(web.__file__).parent / "static" / "js").resolve()
SCRIPTS = sorted(JS.rglob("*.js"))
ROOMS = ("pages", "compare", "candidate", "device", "new", "job", "training", "shared")
"""Folders of scripts; one imports only from itself and those after it."""
SVG = "http://www.w3.org/2000/svg"
"""The name of SVG's elements: no address that is asked."""


@pytest.fixture
def stranger(service: EmbeddedService) -> Iterator[httpx.Client]:
    """Somebody without a key."""
    with httpx.Client(base_url=service.url, timeout=60) as client:
        yield client


@pytest.fixture
def insider(service: EmbeddedService) -> Iterator[httpx.Client]:
    """Somebody signed in."""
    with httpx.Client(base_url=service.url, timeout=60) as client:
        client.post("/v1/session", json={"key": service.key}).raise_for_status()
        yield client


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/new",
        "/jobs",
        "/jobs/job_1",
        "/jobs/job_1?x=1&y=2",
        "/trainings?digest=0",
        "/trainings/trn_1",
        "/devices",
        "/devices/board",
    ],
)
def test_without_a_session_a_page_leads_to_the_login_and_back(stranger: httpx.Client, path: str) -> None:
    answer = stranger.get(path)
    assert answer.status_code == 303
    assert httpx.URL(answer.headers["location"]).path == "/login"
    assert httpx.URL(answer.headers["location"]).params["next"] == path


def test_a_link_from_another_site_gets_the_shell_since_its_request_has_no_cookie(stranger: httpx.Client) -> None:
    answer = stranger.get("/jobs/job_1", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 200
    assert 'data-job="job_1"' in answer.text


WITH_CHARTS = ("/jobs/job_1", "/trainings/trn_1", "/compare", "/docs")
"""Plotly and Swagger UI write styles."""
WITHOUT = (
    "/",
    "/jobs",
    "/new",
    "/jobs/job_1/log",
    "/jobs/job_1/candidates/cnd_1",
    "/trainings",
    "/devices",
    "/devices/board",
    "/login",
)


@pytest.mark.parametrize("path", [*WITH_CHARTS, *WITHOUT])
def test_pages_forbid_inline_scripts_other_origins_and_frames(insider: httpx.Client, path: str) -> None:
    answer = insider.get(path)
    assert answer.status_code == 200
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["style-src"] == ("'self' 'unsafe-inline'" if path in WITH_CHARTS else "'self'")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"


HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize("path", ["/nothing", "/jobs/", "/jobs/job_1/more", "/v1x", "/%3Cscript%3Ealert(1)"])
def test_a_browser_gets_a_page_where_there_is_none(stranger: httpx.Client, insider: httpx.Client, path: str) -> None:
    for client in (stranger, insider):
        answer = client.get(path, headers=HTML)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "There is no page at this address" in answer.text
        assert 'href="/trainings"' in answer.text
        assert "<script>" not in answer.text
        assert "script-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1", "/static/nothing", "/static/own/0/nothing.js"])
def test_the_api_and_files_answer_with_a_problem_document(insider: httpx.Client, path: str) -> None:
    answer = insider.get(path, headers=HTML)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_other_clients_get_a_problem_document(stranger: httpx.Client, insider: httpx.Client) -> None:
    for said in ({}, {"Accept": "application/json"}):
        assert insider.get("/nothing", headers=said).json()["kind"] == "not-found"
        assert stranger.get("/nothing", headers=said).json()["kind"] == "unauthenticated"
    assert insider.post("/nothing", headers=HTML | {"Sec-Fetch-Site": "same-origin"}).json()["kind"] == "not-found"
    assert stranger.get("/metrics", headers=HTML).status_code == 401  # there is something, for who has a key


@pytest.mark.parametrize("page", ["jobs", "trainings", "devices"])
def test_an_id_is_escaped_in_the_shell(insider: httpx.Client, page: str) -> None:
    answer = insider.get(f"/{page}/%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E".replace("%2F", ""))
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    assert "&lt;script&gt;" in answer.text


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_templates_hold_no_inline_code_and_no_foreign_address(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert not re.search(r"\bon\w+=", text)
    assert not re.search(r"<style|\bstyle=", text)
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text)


def test_a_page_asks_for_all_its_modules_at_once(insider: httpx.Client) -> None:
    imported, waiting = set(), [JS / "pages" / "job.js", JS / "shared" / "terms.js"]
    while waiting:
        script = waiting.pop()
        named = {(script.parent / name).resolve() for name in re.findall(r'from "([^"]+)"', script.read_text())}
        waiting += named - imported
        imported |= named
    asked = re.findall(r'rel="modulepreload" href="/static/own/\w+/js/([^"]+)"', insider.get("/jobs/job_1").text)
    assert set(asked) == {script.relative_to(JS).as_posix() for script in imported}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.relative_to(JS).as_posix())
def test_scripts_never_read_markup_or_code_from_text(script: Path) -> None:
    text = script.read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", text)
    assert not re.search(r"https?://", text.replace(SVG, ""))
    assert "localStorage" not in text  # keys and data leave no trace in the browser
    assert "sessionStorage" not in text


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.relative_to(JS).as_posix())
def test_addresses_in_scripts_stay_below_the_path_of_a_proxy(script: Path) -> None:
    """`element` does it for its `href`."""
    uses = re.findall(r"(?:\.href = |location\.(?:assign|replace)\(|fetch\(|EventSource\()(.*)", script.read_text())
    assert [use for use in uses if not re.match(r"(`\$\{)?withRoot\(|destination\(\)", use)] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.relative_to(JS).as_posix())
def test_scripts_import_files_that_are_there_and_only_downwards(script: Path) -> None:
    room = ROOMS.index(script.parent.relative_to(JS).as_posix())
    for name in re.findall(r'from "([^"]+)"', script.read_text()):
        imported = (script.parent / name).resolve()
        assert imported in SCRIPTS, name
        assert ROOMS.index(imported.parent.name) >= room, name
        assert room > 0 or imported.parent != script.parent, "a page imports no page"


def test_every_page_loads_a_script_of_its_own() -> None:
    loaded = {name for path in TEMPLATES for name in re.findall(r"module\(root, 'js/([^']+)'\)", path.read_text())}
    assert loaded == {"shared/terms.js", *(f"pages/{path.name}" for path in SCRIPTS if path.parent.name == "pages")}


def test_words_are_explained_as_in_the_documentation() -> None:
    docs = Path(__file__).parents[2] / "docs"
    concepts = "".join((docs / page).read_text() for page in ("concepts.md", "frontiers.md", "measuring.md"))
    plain = " ".join(re.sub(r"\[([^\]]+)\]\([^)]+\)|[*`]", r"\1", concepts).split())
    assert [name for name, says in WORDS.items() if says not in plain] == []
    used = {name for path in TEMPLATES for name in re.findall(r"words\.(\w+)", path.read_text())}
    assert used == WORDS.keys()


def test_own_assets_are_cached_forever_under_their_version(stranger: httpx.Client) -> None:
    for path in own_assets():
        answer = stranger.get(own_address(path))
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = stranger.get(own_address(path), headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_assets_of_another_version_are_looked_after_again(stranger: httpx.Client) -> None:
    answer = stranger.get("/static/own/0123456789abcdef/style.css")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", ["nothing.js", "../pages.py", "..%2Fpages.py", "../../app.py", "templates/job.html"])
def test_nothing_else_is_served(stranger: httpx.Client, path: str) -> None:
    answer = stranger.get(httpx.URL(own_address("style.css")).path.replace("style.css", path))
    assert answer.status_code in (401, 404)
    assert answer.headers["content-type"] == "application/problem+json"


def test_plotly_comes_from_the_installed_package_whole_or_gzipped(stranger: httpx.Client) -> None:
    address = packaged_address("plotly.js")
    assert version("plotly") in address
    with stranger.stream("GET", address, headers={"Accept-Encoding": "gzip"}) as answer:
        zipped = b"".join(answer.iter_raw())
        assert answer.headers["content-encoding"] == "gzip"
    plain = stranger.get(address, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.headers["etag"] != answer.headers["etag"]
    assert gzip.decompress(zipped) == plain.content
    assert b"plotly.js v" in plain.content[:200]
    assert len(zipped) < len(plain.content) / 2
    head = stranger.head(address, headers={"Accept-Encoding": "identity"})
    assert (head.status_code, head.headers["etag"]) == (200, plain.headers["etag"])


def test_favicon_is_the_icon(stranger: httpx.Client) -> None:
    answer = stranger.get("/favicon.ico", follow_redirects=True)
    assert answer.headers["content-type"].startswith("image/svg+xml")
