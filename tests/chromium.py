"""A page of a real browser. The test is skipped where there is no Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def chromium() -> str | None:
    """Where it is, if anywhere."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def chromium_page(width: int = 1280, height: int = 900, scheme: str = "light") -> Iterator[Any]:
    """A page of ``width`` by ``height`` points of a reader who likes the colour ``scheme``, light or dark."""
    if (path := chromium()) is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=path, args=["--no-sandbox"])
        look: Any = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
        yield browser.new_context(**look).new_page()
        browser.close()
