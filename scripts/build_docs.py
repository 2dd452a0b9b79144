"""Builds the documentation as a site: `python scripts/build_docs.py`, into site/.

The pages are those of docs/ and files elsewhere in the repository. They are copied into build/docs with adapted links,
and Zensical builds the site (zensical.toml). A link to a missing page or heading fails the build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.txt",
    "benchmarks/README.md": "benchmarks.md",
    "examples/find_for_my_laptop.ipynb": "examples/find_for_my_laptop.ipynb",
    "examples/compare_two_devices.ipynb": "examples/compare_two_devices.ipynb",
}
KINDS = (".md", ".png", ".svg", ".css", ".json", ".yaml")
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")


def find_pages() -> dict[Path, Path]:
    """Returns the source files of the site → their paths in the site."""
    docs = ROOT / "docs"
    pages = {path: path.relative_to(docs) for path in sorted(docs.rglob("*")) if path.suffix in KINDS}
    return pages | {ROOT / path: Path(page) for path, page in ELSEWHERE.items()}


def collect(folder: Path) -> None:
    """Writes every page into `folder`, with links relative to the page's path."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = find_pages()
    for source, page in pages.items():

        def relink(link: re.Match[str], source: Path = source, page: Path = page) -> str:
            target = pages.get(Path(os.path.normpath(source.parent / link[1])))
            return link[1] if target is None else Path(os.path.relpath(target, page.parent)).as_posix()

        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            text = LINK.sub(relink, source.read_text(encoding="utf-8"))
            (folder / page).write_text(text, encoding="utf-8")
        else:
            shutil.copyfile(source, folder / page)


def build(folder: Path) -> Path:
    """Builds the site in `folder`/site, which is returned. Raises subprocess.CalledProcessError for a broken link."""
    collect(folder / "build" / "docs")
    if folder != ROOT:
        shutil.copyfile(ROOT / "zensical.toml", folder / "zensical.toml")
    subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=folder, check=True)
    return folder / "site"


if __name__ == "__main__":
    try:
        sys.stdout.write(f"Open {build(ROOT) / 'index.html'}\n")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
