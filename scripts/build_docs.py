"""Builds the documentation as a site: `python scripts/build_docs.py`, into site/.

The pages are those of docs/ and files that are elsewhere in the repository. They are copied into build/docs, with
links between them as the site needs them, and Zensical builds the site (zensical.toml). A link to a page or a heading
that does not exist fails the build.
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
KINDS = (".md", ".png", ".svg", ".css", ".json")
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")


def find_pages() -> dict[Path, Path]:
    """Every file that the site is made of → its path in the site."""
    docs = ROOT / "docs"
    pages = {path: path.relative_to(docs) for path in sorted(docs.rglob("*")) if path.suffix in KINDS}
    return pages | {ROOT / path: Path(page) for path, page in ELSEWHERE.items()}


def collect(folder: Path) -> None:
    """Writes every page into `folder`, its links relative to its place there."""
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
    """Builds the site in `folder`/site, and returns that. Raises subprocess.CalledProcessError if a link is broken."""
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
