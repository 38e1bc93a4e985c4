"""The gallery of a campaign: 24 held-out games chosen by rule, the first policy beside the last, a page each.

The games are those of the split and the way of playing that decide the champion. They are played once more, as in the
evaluation, since that keeps outcomes alone. Same data, same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from agentprm_core.datasets import atomic_write, games_from_table, read_table
from agentprm_core.policy.models import Checkpoint, load_checkpoint, playing_dtype
from agentprm_core.search.decoding_config import DecodingConfig, decoding
from agentprm_core.search.playing import Search
from agentprm_core.types import GAMES, Game
from tasks.frame import layout
from tasks.frame.given import measuring
from tasks.frame.machine import use
from tasks.frame.sections import Params
from tasks.frame.stage import write_json
from tasks.report.looking import look
from tasks.report.pages import render
from tasks.report.shown import Shown, episode_page

PAGES = "pages.json"
"""{game: the file of its page}."""
COUNT = 24
QUOTA = {"gained": 6, "lost": 4, "disagreed": 4, "longest": 3, "failed": 3}
"""Games of each rule, at the most; then one of each kind that is not among them, then any."""
WHY = {
    "gained": "lost by the first policy, won by the last",
    "lost": "won by the first policy, lost by the last",
    "disagreed": "PRM and outcome of the last policy disagree: lost with a mean score above 0.5, or won with one below",
    "longest": "the longest games that the last policy won",
    "failed": "lost by both policies",
    "kind": "of a kind that no other rule chose",
    "any": "any other game",
}
APART = 0.5
"""Between the PRM's mean score of a game and 1 or 0 for won or lost, from which on they disagree."""
_SCORED = 6
"""Candidates of a turn that the PRM is asked about."""
_TREES = 4
"""Games that a beam search is shown of, where the evaluation has one."""


@dataclass(frozen=True)
class Gallery:
    """What was looked at."""

    games: Sequence[Game]
    """In the order of the index."""
    why: Mapping[str, str]
    """{game: the rule that chose it}, of :data:`WHY`."""
    shown: Mapping[str, Sequence[Shown]]
    """{game: the first policy's episode, the last's}."""
    prms: Sequence[str]
    same: int
    """Episodes that ended as in the evaluation, won or lost."""

    @property
    def episodes(self) -> int:
        return sum(map(len, self.shown.values()))


def choose(first: Mapping[str, Mapping], last: Mapping[str, Mapping], count: int = COUNT) -> dict[str, str]:
    """{game: why}, at most ``count`` games in the order chosen. ``first``, ``last``: rows of OUTCOMES by game of two
    policies on the same games; of equals the first by id."""
    ids = sorted(last)
    found: dict[str, str] = {}

    def take(why: str, ranked: Sequence[str], most: int) -> None:
        for game in [game for game in ranked if game not in found][: min(most, count - len(found))]:
            found[game] = why

    take("gained", [g for g in ids if last[g]["won"] and not first[g]["won"]], QUOTA["gained"])
    take("lost", [g for g in ids if first[g]["won"] and not last[g]["won"]], QUOTA["lost"])
    gaps = {g: abs(last[g]["score"] - last[g]["won"]) for g in ids if last[g]["score"] is not None}
    apart = sorted((g for g, gap in gaps.items() if gap > APART), key=lambda g: -gaps[g])
    take("disagreed", apart, QUOTA["disagreed"])
    won = [g for g in ids if last[g]["won"]]  # a lost game mostly ends at the limit of turns, and shows no more for it
    take("longest", sorted(won, key=lambda g: -last[g]["actions"]), QUOTA["longest"])
    take("failed", [g for g in ids if not first[g]["won"] and not last[g]["won"]], QUOTA["failed"])
    for kind in sorted({last[g]["kind"] for g in ids}):
        of_kind = [g for g in ids if last[g]["kind"] == kind]
        if not found.keys() & {*of_kind}:
            take("kind", of_kind, 1)
    take("any", ids, count)
    return found


def gallery(params: Params, outcomes: pa.Table, deciding: Sequence[Mapping]) -> Gallery:
    """Choose and play. ``outcomes``: of all policies; ``deciding``: rows of the split and the way of playing that the
    champion is chosen by."""
    use(params.compute)
    first, last = deciding[0], deciding[-1]
    rows = _by_game(outcomes, first), _by_game(outcomes, last)
    why = choose(rows[0], rows[1])
    games = [game for game in _games(first["split"]) if game.id in why]
    games.sort(key=lambda game: list(why).index(game.id))
    numbers = list(dict.fromkeys((first["iteration"], last["iteration"])))
    judge = params.policies[str(last["iteration"])].prm
    prm = _loaded(params, layout.prm(judge), "prm")
    way = decoding(first["decoding"])
    plain = DecodingConfig("greedy") if way.method == "lookahead" else way  # whose world model evaluate alone has
    looked = []
    for number in numbers:
        policy = _loaded(params, layout.policy(number), "policy")
        chooser = _loaded(params, layout.prm(params.policies[str(number)].prm), "prm") if plain.is_search else None
        looked.append(_look(params, policy, chooser, prm, games, plain, f"policy {number}"))
    games = [game for game in games if all(game.id in of for of in looked)]
    same = sum(one.episode.won == row[game]["won"] for found, row in zip(looked, rows) for game, one in found.items())
    trees = _trees(params, games, why, numbers[-1], prm, looked[-1])
    shown = {game.id: [of[game.id] for of in looked] for game in games}
    shown = {game: [*(of[-1:] if game in trees else of), *trees.get(game, [])] for game, of in shown.items()}
    return Gallery(games, why, shown, [f"PRM {judge}"], same)


def write(found: Gallery) -> None:
    """``index.html``, a page a game, and :data:`PAGES`, as :data:`tasks.frame.layout.GALLERY`."""
    pages = {game.id: f"{number:02}.html" for number, game in enumerate(found.games, 1)}
    with atomic_write(layout.GALLERY) as folder:
        folder.mkdir()
        for game in found.games:
            note = f"Chosen because: {WHY[found.why[game.id]]}."
            page = episode_page(game, found.shown[game.id], found.prms, back="index.html", note=note)
            (folder / pages[game.id]).write_text(page)
        index = render("gallery", groups=list(_groups(found, pages)), found=found)
        (folder / "index.html").write_text(index)
        write_json(pages, folder / PAGES)


def _trees(
    params: Params,
    games: Sequence[Game],
    why: Mapping[str, str],
    number: int,
    prm: Checkpoint,
    alone: Mapping[str, Shown],
) -> dict[str, list[Shown]]:
    """Of the first games that the last policy lost, whatever the first policy did there, its beam search, where the
    evaluation has one. It stands in the place of the first policy."""
    ways = [way for name in params.evaluate.decoding if (way := decoding(name)).method == "beam"]
    lost = [game for game in games if why[game.id] != "lost" and not alone[game.id].episode.won][:_TREES]
    if not ways or not lost or decoding(params.evaluate.decoding[0]).method == "beam":
        return {}
    policy = _loaded(params, layout.policy(number), "policy")
    found = _look(params, policy, prm, prm, lost, ways[0], f"policy {number}")
    return {game: [one] for game, one in found.items()}


def _look(
    params: Params,
    policy: Checkpoint,
    chooser: Checkpoint | None,
    prm: Checkpoint,
    games: Sequence[Game],
    way: DecodingConfig,
    name: str,
) -> dict[str, Shown]:
    settings, critic = measuring(params), params.critic
    search = Search(way, settings, params.rollout.temperature, prior=way.prior(critic.prior), gamma=critic.gamma)
    return look(policy, chooser, [prm], games, search, params.seed, name=f"{name}, {search.name}", scored=_SCORED)


def _groups(found: Gallery, pages: Mapping[str, str]) -> Iterator[dict]:
    """The games of the index, by the rule that chose them."""
    for rule, sentence in WHY.items():
        rows = [
            {
                "page": pages[game.id],
                "goal": game.goal,
                "kind": game.kind.replace("_", " "),
                "played": [
                    {"name": one.name, "won": one.episode.won, "actions": one.episode.length, "q": _mean_q(one)}
                    for one in found.shown[game.id]
                ],
            }
            for game in found.games
            if found.why[game.id] == rule
        ]
        if rows:
            yield {"why": sentence, "rows": rows}


def _mean_q(one: Shown) -> str:
    scores = [next(c for c in candidates if c.taken).scores[0] for candidates in one.opinions]
    return f"{sum(scores) / len(scores):.2f}"


def _by_game(outcomes: pa.Table, row: Mapping) -> dict[str, Mapping]:
    where = [pc.field(name) == row[name] for name in ("iteration", "split", "decoding")]
    return {of["game_id"]: of for of in outcomes.filter(where[0] & where[1] & where[2]).to_pylist()}


def _games(split: str) -> list[Game]:
    return games_from_table(read_table(layout.games(split), GAMES))


def _loaded(params: Params, folder: Path, kind: str) -> Checkpoint:
    dtype = playing_dtype(params.compute.precision)
    return load_checkpoint(folder, plays=True, kind=kind, device=params.compute.device, dtype=dtype)
