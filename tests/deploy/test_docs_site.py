"""The documentation as a site, built strictly: every link has its target, and nothing comes from another host."""

from __future__ import annotations

import runpy
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import tomli

ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """The links of a page, and what they can point at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.add(given.get("id") or "")
        self.links += [(tag, given[name] or "") for name in ("href", "src") if name in given]


def test_every_link_of_the_site_has_its_target(tmp_path: Path) -> None:
    site = runpy.run_path(str(ROOT / "scripts" / "build_docs.py"))["build"](tmp_path)
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 40
    for path, page in pages.items():
        for tag, link in page.links:
            parts = urlsplit(link)
            if parts.netloc:
                assert tag == "a", f"{path.name} loads {link}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path.name}: {link}"
            if parts.fragment and target in pages:
                assert parts.fragment in pages[target].anchors, f"{path.name}: {link}"


def test_the_navigation_has_every_page() -> None:
    def leaves(entry: Any) -> set[str]:
        if isinstance(entry, str):
            return {entry}
        return {page for part in (entry.values() if isinstance(entry, dict) else entry) for page in leaves(part)}

    pages = runpy.run_path(str(ROOT / "scripts" / "build_docs.py"))["find_pages"]().values()
    config = tomli.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    assert leaves(config["project"]["nav"]) == {page.as_posix() for page in pages if page.suffix == ".md"}
