"""The pictures ``play.png``, ``show.png`` and ``report.png`` of the documentation, made in Chromium:

    python -m tests.pictures --campaign DIR --out docs

``play.png`` is of the agent that comes with the package. The others are of a finished campaign, whose gallery, plots
and report are made anew in a folder of their own: the campaign's stay as they are.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from agentprm_core.comparing import deciding
from agentprm_core.types import Game
from tasks.commands import play, show
from tasks.commands.generated import WATCHED
from tasks.commands.play_screen import PlayApp
from tasks.frame import layout
from tasks.frame.params import load_params
from tasks.frame.tracking import campaign_id
from tasks.report import campaign, gallery, overview
from tests.chromium import chromium, chromium_page
from tests.model.test_play_screen import settled

ROOT = Path(__file__).parents[1]
WIDTH, HEIGHT = 1100, 900
COLUMNS, LINES = 110, 26
"""Of the terminal."""
FIRST_TURN, UNDECIDED = 3, 0.9
"""The terminal is shown at the first turn after so many, in the first game that has one, at which the policy gives no
action as much."""
_MADE_ANEW = (layout.PLOTS, layout.REPORTS, layout.GALLERY)


def undecided_turn() -> str:
    """The screen of ``agentprm play --way best_of_16`` as an SVG: several actions are probable, and were sampled."""
    with patch.object(sys, "argv", ["agentprm play", "--way", "best_of_16"]):
        loaded = play.load(play._checked(play._parser("agentprm play")))

    async def run() -> str:
        app = PlayApp(lambda: loaded)
        async with app.run_test(size=(COLUMNS, LINES)) as pilot:
            await settled(app, pilot)
            while not _undecided(app) and app.number < WATCHED:
                await pilot.press("n" if app.game.ended else "space")
                await settled(app, pilot)
            seen = app.export_screenshot()
        app.leave()
        return seen

    return re.sub(r"@font-face\s*{[^}]*}", "", asyncio.run(run()))  # which the network would be asked for


def _undecided(app: PlayApp) -> bool:
    most = max((option.chance for option in app.outlook.options), default=1.0) if app.outlook else 1.0
    return len(app.game.steps) >= FIRST_TURN and most < UNDECIDED


def pages(finished: Path, folder: Path) -> tuple[Path, Path]:
    """``agentprm show`` of two policies of the campaign ``finished``, and its report. ``folder`` is an empty one."""
    _linked(finished, folder)
    with chdir(folder):
        params = load_params()
        outcomes = campaign.evaluated(params)
        rows = campaign.table(outcomes, params, campaign_id(params.as_dict()))
        decide = deciding(rows, params.evaluate.decoding[0])
        campaign.draw(rows, decide, params)
        looked = gallery.gallery(params, outcomes, decide)
        gallery.write(looked)
        overview.report_page(params, rows, outcomes)
        first, last = (str(layout.policy(row["iteration"])) for row in (decide[0], decide[-1]))
        prm = str(layout.prm(params.policies[str(decide[-1]["iteration"])].prm))
        asked = ["agentprm show", "--policy", first, "--policy", last, "--prm", prm, "--game", _longest(looked).id]
        with patch.object(sys, "argv", asked):
            show.main("agentprm show")
    return folder / "show.html", folder / layout.REPORTS / overview.PAGE


def _linked(finished: Path, folder: Path) -> None:
    """The campaign without what is made anew, but for the curves that the plots are drawn from."""
    data, scratch = folder / layout.DATA, folder / layout.SCRATCH
    data.mkdir()
    scratch.mkdir()
    shutil.copy(finished / "params.yaml", folder)
    (folder / "agentprm_core").symlink_to(ROOT / "agentprm_core")
    for path in (finished / layout.DATA).iterdir():
        if layout.DATA / path.name not in _MADE_ANEW:
            (data / path.name).symlink_to(path.resolve())
    for path in (finished / layout.SCRATCH).iterdir():
        (scratch / path.name).symlink_to(path.resolve())
    (folder / layout.PLOTS).mkdir()
    for path in (finished / layout.PLOTS).glob("policy-*.json"):
        shutil.copy(path, folder / layout.PLOTS)
    (folder / layout.REPORTS).mkdir()


def _longest(looked: gallery.Gallery) -> Game:
    """Of the games that the first policy lost and the last won, the one that took the last most actions."""
    gained = [game for game in looked.games if looked.why[game.id] == "gained"] or looked.games
    return max(gained, key=lambda game: looked.shown[game.id][-1].episode.length)


def photograph(page: Path, picture: Path, *, whole: str | None = None) -> None:
    """The top of a page, or the element ``whole`` of it. Raises AssertionError where the browser finds fault with it,
    or the network is asked for something."""
    amiss: list[str] = []
    with chromium_page(WIDTH, HEIGHT) as opened:
        opened.on("console", lambda said: amiss.append(said.text))
        opened.on("pageerror", lambda error: amiss.append(str(error)))
        opened.on("request", lambda request: amiss.append(request.url) if request.url.startswith("http") else None)
        opened.goto(page.resolve().as_uri())
        (opened.locator(whole) if whole else opened).screenshot(path=picture)
    assert amiss == [], f"{page}: {amiss}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaign", type=Path, required=True, metavar="DIR", help="the folder of a finished one")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="(default %(default)s)")
    asked = parser.parse_args(arguments)
    if chromium() is None:
        parser.error("no Chromium here: apt-get install chromium")
    if not (asked.campaign / layout.outcomes(0)).exists():
        parser.error(f"--campaign {asked.campaign}: {layout.outcomes(0)} is not there; name a finished campaign")
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        terminal = Path(folder) / "play.html"
        terminal.write_text(f'<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">{undecided_turn()}')
        photograph(terminal, out / "play.png", whole="svg")
        (made := Path(folder) / "campaign").mkdir()
        shown, report = pages(asked.campaign.resolve(), made)
        photograph(shown, out / "show.png")
        photograph(report, out / "report.png")


if __name__ == "__main__":
    main()
