"""Hooks of mkdocs: README is the first page, and experiments, CONTRIBUTING and others outside docs/ are pages too.

Links in Markdown are as the repository has them, so that they work there. Here they are rewritten to the site's pages.
A link to a file of code becomes its text. A link to nothing stays, and ``mkdocs build --strict`` fails on it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "data/README.md", "experiments/README.md")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def outside() -> dict[str, str]:
    """Path in the repository → page of the site."""
    told = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("experiments/*/README.md"))
    return {"README.md": "index.md"} | {path: path for path in (*OUTSIDE, *told)}


def on_config(config):
    """Every experiment is in the navigation."""
    (listed,) = (entry["Experiments"] for entry in config["nav"] if "Experiments" in entry)
    listed += [page for page in outside().values() if page.startswith("experiments/") and page not in listed]
    return config


def on_files(files, config):
    for path, page in outside().items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown, page, config, files):
    where = {there: path for path, there in outside().items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return _LINK.sub(lambda link: _rewritten(link, where, page.file.src_uri, files), markdown)


def _rewritten(link: re.Match, where: str, page: str, files) -> str:
    image, text, target, anchor = link.groups()
    if ":" in target:
        return link[0]
    path = os.path.normpath(os.path.join(os.path.dirname(where), target))
    there = outside().get(path, path.removeprefix("docs/"))
    if files.get_file_from_path(there):
        return f"{image}[{text}]({os.path.relpath(there, os.path.dirname(page) or '.')}{anchor or ''})"
    return text if (ROOT / path).exists() else link[0]
