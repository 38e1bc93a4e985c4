"""The gallery, the campaign's page and MLflow's traces: chosen by rule, true to the figures, the same twice."""

import dataclasses
import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from markupsafe import escape
from mlflow.exceptions import MlflowException
from PIL import Image

from agentprm_core.comparing import deciding
from agentprm_core.datasets import games_from_table, read_table, write_table
from agentprm_core.evaluate import outcomes_table
from agentprm_core.opinions import Candidate
from agentprm_core.policy.sampler import Cost
from agentprm_core.search.recorded import BACK, KEPT, MERGED, Weighed
from agentprm_core.types import GAMES, Episode, Game, Turn
from tasks.commands import report
from tasks.frame import layout, tracing
from tasks.frame.clock import write_timing
from tasks.frame.mlflow_store import connect
from tasks.frame.order import ONCE
from tasks.frame.params import load_params
from tasks.frame.sender import NEVER
from tasks.frame.stage import write_json
from tasks.frame.tracing import log_traces, traces
from tasks.frame.tracking import campaign_id
from tasks.report import campaign, figures, gallery, overview
from tasks.report.added import UNKNOWN
from tasks.report.pages import numeric
from tasks.report.shown import Branch as ActionPlays
from tasks.report.shown import Label, Shown, episode_page
from tasks.report.text import BUDGET
from tests import pictures
from tests.chromium import chromium, chromium_page
from tests.data.test_compare import written
from tests.data.test_show import GAME, episode, shown

ROOT = Path(__file__).parents[2]


def row(won: bool, actions: int = 5, score: float | None = 0.5, kind: str = "pick") -> dict:
    return {"won": won, "actions": actions, "score": score, "kind": kind}


def test_no_change_of_a_score_lies_above_its_panel(tmp_path, monkeypatch):
    """Of the second PRM it is larger than of the first, and both share the axis."""
    drawn = []
    monkeypatch.setattr(figures, "_save", lambda figure, path: drawn.append(figure))
    line = {"turn": 1, "won": 0.5, "lost": 0.4, "episodes": 9}
    figures.scores_by_turn({n: [{**line, "change": 0.1 * n}] for n in (1, 2)}, tmp_path / "a.png")
    low, high = drawn[0].axes[-1].get_ylim()
    assert low == 0 and high > 0.2


def test_games_are_chosen_by_rule():
    first = {f"g{n:02}": row(n % 2 == 0) for n in range(30)}
    last = {f"g{n:02}": row(n % 3 == 0, actions=n, score=n / 30, kind="rare" if n == 0 else "pick") for n in range(30)}
    why = gallery.choose(first, last)
    assert len(why) == gallery.COUNT
    by_rule = {rule: [game for game, of in why.items() if of == rule] for rule in gallery.WHY}
    assert by_rule["gained"] == ["g03", "g09", "g15", "g21", "g27"]
    assert by_rule["lost"] == ["g02", "g04", "g08", "g10"]
    assert by_rule["disagreed"] == ["g00", "g29", "g28", "g26"]
    assert by_rule["longest"] == ["g24", "g18", "g12"]
    assert by_rule["failed"] == ["g01", "g05", "g07"]
    assert all(len(games) <= gallery.QUOTA[rule] for rule, games in by_rule.items() if rule in gallery.QUOTA)


def test_games_that_the_prm_is_right_about_are_no_disagreement():
    """Nor are lost games the longest: their places go to the rules after."""
    last = {f"g{n:02}": row(n < 9, actions=n if n < 9 else 30, score=0.9 if n < 9 else 0.08) for n in range(30)}
    why = gallery.choose(last, last)
    assert set(why.values()) == {"longest", "failed", "any"} and len(why) == gallery.COUNT
    assert [game for game, of in why.items() if of == "longest"] == ["g08", "g07", "g06"]
    last |= {"g20": row(False, score=0.6), "g02": row(True, score=0.45), "g03": row(True, score=0.5)}
    why = gallery.choose(last, last)
    assert [game for game, of in why.items() if of == "disagreed"] == ["g20", "g02"]


def test_a_kind_that_no_rule_chose_has_a_game():
    last = {f"g{n}": row(True, actions=9 - n, score=1.0, kind="rare" if n == 8 else "pick") for n in range(9)}
    why = gallery.choose(last, last, count=8)
    assert why["g8"] == "kind" and len(why) == 8
    assert gallery.choose(last, {g: {**of, "score": None} for g, of in last.items()}).keys() == last.keys()


@pytest.mark.parametrize("cell", [3, 0.5, "7", "+2.5", "-0.5", "93.0%", "1,123", "1.2e-06"])
def test_what_is_a_number(cell):
    assert numeric(cell) and not numeric("policy 0") and not numeric("") and not numeric("93.0% [88%, 96%]")


def outcomes(games: list[Game], iteration: int, decoding: str, won: int) -> pa.Table:
    turns = (Turn("you see a mug 1", "look", ("look",), True, "key"),)
    played = [
        Episode(game.id, 0, 5, turns, n < won, extra={"cost": Cost(generated=3), "world_steps": 1})
        for n, game in enumerate(games)
    ]
    return outcomes_table(
        played, games, iteration=iteration, method="m", split="unseen", decoding=decoding, constrained=True, seed=1,
        policy="d", scores={game.id: 0.4 for game in games},
    )  # fmt: skip


@pytest.fixture
def finished(checkpoints, tmp_path, monkeypatch):
    """A campaign with one iteration, as ``compare`` finds it: parameters, table of iterations, outcomes."""
    monkeypatch.chdir(tmp_path)
    for kind, number in (("policy", 0), ("policy", 1), ("prm", 1)):
        shutil.copytree(checkpoints / kind, tmp_path / "data/checkpoints" / kind / str(number))
    layout.games("unseen").parent.mkdir(parents=True)
    shutil.copy(checkpoints / "unseen.parquet", layout.games("unseen"))
    (tmp_path / "agentprm_core").symlink_to(ROOT / "agentprm_core")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    params = load_params()
    params = dataclasses.replace(
        params,
        compute=dataclasses.replace(params.compute, threads=1, slots=8),
        env=dataclasses.replace(params.env, max_turns=3),
        iterations={"1": params.iterations["1"]},
        policies={number: params.policies[number] for number in ("0", "1")},
    )
    games = games_from_table(read_table(layout.games("unseen"), GAMES))
    table = pa.concat_tables(
        outcomes(games, i, decoding, won) for i, decoding, won in
        ((0, "greedy", 0), (1, "greedy", 1), (0, "beam_4x4", 1), (1, "beam_4x4", 2))
    )  # fmt: skip
    written([{"step": 1, "kl": 0.1, "score": 0.5}], None)
    write_json({"turns_played": 30, "episodes_played": 4321, "tokens_trained": 12345}, layout.metrics("rollout-1"))
    for slug in (*ONCE, "label-1", "collect-1"):
        write_json({}, layout.metrics(slug))
    rows = campaign.table(table, params, campaign_id(params.as_dict()))
    decide = deciding(rows, "greedy")
    campaign.draw(rows, decide, params)
    gates = Path(".scratch/gates/rollout@1.json")
    gates.parent.mkdir(parents=True)
    gates.write_text(json.dumps([{"why": "w", "success": False, "observed": "3", "rows": []}]))
    return params, rows, decide, table


def pages(finished) -> dict[str, bytes]:
    params, rows, decide, table = finished
    found = gallery.gallery(params, table, decide)
    gallery.write(found)
    layout.REPORTS.mkdir(exist_ok=True)
    overview.report_page(params, rows, table)
    files = [*layout.GALLERY.glob("*.html"), layout.REPORTS / overview.PAGE]
    return {path.name: path.read_bytes() for path in files}


def test_the_pages_of_a_campaign_are_the_same_twice(finished):
    once = pages(finished)
    assert once == pages(finished)
    assert once.keys() == {"index.html", "01.html", "02.html", "campaign.html"}
    assert max(map(len, once.values())) < 2_000_000
    index, page = once["index.html"].decode(), once["campaign.html"].decode()
    assert "beam_4x4" in index and 'href="01.html"' in index and "of the episodes ended as in the evaluation" in index
    assert "50.0%" in page and "12,345" in page and "w: 3" in page
    assert "The beam search of" in "".join(text.decode() for name, text in once.items() if name[0] == "0")
    assert "https://" not in page


def test_the_pages_figures_are_those_of_the_table(finished):
    _, rows, decide, table = finished
    climb = overview.climb(rows)
    cells = [dict(zip(climb["head"], line)) for line in climb["body"]]
    greedy = next(line for line in cells if line["policy"] == 1 and line["playing"] == "greedy")
    assert (greedy["success"], greedy["v. before"], greedy["games"]) == ("50.0%", "+50.0", 2)
    took = {(line["policy"], line["playing"]): tuple(line[name] for name in BUDGET) for line in cells}
    assert took[0, "greedy"] == (0, 0, "") and took[0, "beam_4x4"] == took[1, "greedy"] == (4321, 12345, "")
    kinds = overview.by_kind(decide)
    assert sum(line[1] for line in kinds["body"]) == 2
    flips, counts = overview._flips(table, decide)
    assert counts["body"] == [["0 to 1", 1, 0, 1, 2]] and len(flips["body"]) == 1
    adds = overview.searches(rows)["body"]
    assert [line[5] for line in adds] == ["+50.0", "+50.0"]


def test_the_page_says_of_each_prm_what_it_adds(finished):
    """Above what the search adds, which is no figure of the PRM's."""
    params, rows, _, table = finished
    assert escape(UNKNOWN) in section(pages(finished)["campaign.html"].decode(), "What the PRM adds")
    games = games_from_table(read_table(layout.games("unseen"), GAMES))
    control = [outcomes(games, i, "beam_4x4_by_untrained_likelihood", 1) for i in (0, 1)]
    said = "PRM 1 was refused (58 % [48, 68] of 184 pairs): policy 1 is policy 0"
    rows = [row | {"refused": said if row["iteration"] else None} for row in rows]
    overview.report_page(params, rows, pa.concat_tables([table, *control]))
    page = (layout.REPORTS / overview.PAGE).read_text()
    shown = section(page, "What the PRM adds")
    refused, *verdicts = re.findall("<p>(.*)</p>", shown)
    assert refused == f"{said}."
    assert [line.partition(":")[0] for line in verdicts] == [
        f"PRM 1 adds nothing that shows to beam_4x4 of policy {i} over untrained likelihood" for i in (0, 1)
    ]
    assert shown.count("<tr>") == 5 and "+50.0" in shown  # the head, and each policy on unseen and on all games
    assert page.index("What the PRM adds</h2>") < page.index("What the search adds</h2>")
    assert "PRM" not in section(page, "What the search adds")


def section(page: str, title: str) -> str:
    return page.partition(f"{title}</h2>")[2].partition("<h2")[0]


def test_the_page_has_watts_or_says_once_why_not(finished):
    params = finished[0]
    assert pages(finished)["campaign.html"].decode().count(overview.NO_WATTS) == 1
    timing = {"seconds": 20.0, "orchestration": 1.0, "cpu_watts": 61.25}
    write_timing("rollout@1", campaign_id(params.as_dict()), timing)
    page = pages(finished)["campaign.html"].decode()
    assert page.count(">61.2<") == 2 and overview.NO_WATTS not in page  # the stage's, and the mean of all


def test_a_picture_that_has_nothing_to_show_is_a_line(finished):
    """No update followed a PRM, and no search was evaluated."""
    params, rows, decide, table = finished
    page = pages(finished)["campaign.html"].decode()
    assert overview.NO_UPDATE not in page and page.count("hacking.png, drawn by") == 1
    written([{"step": 1, "loss": 0.1}], None)
    alone = [{**of, "over_policy": None} for of in rows]
    campaign.draw(alone, decide, params)  # DVC knows the pictures by name, so they are there
    overview.report_page(params, alone, table)
    page = (layout.REPORTS / overview.PAGE).read_text()
    for line, picture in ((overview.NO_UPDATE, "hacking.png"), (overview.NO_SEARCH, "search_gain.png")):
        assert page.count(escape(line)) == 1 and picture not in page
    shown = re.findall('<figure[^>]*><img src="[^"]*" alt="([^"]+)"><figcaption>([^<]+)<', page)
    assert len(shown) == page.count("<img") == 5 and all(says.startswith(alt) for alt, says in shown)
    assert "scores.png, drawn by" in page and "Nothing here on this machine" not in page


def test_the_page_with_campaigns_of_other_seeds(finished, tmp_path, monkeypatch):
    """The same page in another place: its links lead to the gallery, and the stage's own stays as it is."""
    _, rows, _, table = finished
    own = pages(finished)["campaign.html"]
    assert b"agentprm report --seeds DIR DIR" in own and b"Success over seeds" not in own
    stages_left(tmp_path, 1, [{**of, "success": 0.5} for of in rows], table)
    stages_left(tmp_path / "other", 2, [{**of, "success": 1.0} for of in rows])
    monkeypatch.setattr(sys, "argv", ["report", "--seeds", "other"])
    report.main("agentprm report")
    page = (tmp_path / "report.html").read_text()
    assert "Success over seeds" in page and "<td>75.0%</td>" in page.replace(' class="number"', "")
    assert "agentprm report --seeds DIR DIR" not in page and page.count("Drawn by agentprm report --seeds") == 1
    links = {link.partition("#")[0] for link in re.findall('href="([^"]+)"', page)} - {"", "data:,"}
    assert "data/gallery/index.html" in links and all((tmp_path / link).exists() for link in links)
    assert (layout.REPORTS / overview.PAGE).read_bytes() == own


def stages_left(folder: Path, seed: int, rows: list[dict], table: pa.Table | None = None) -> None:
    """What the command reads of a campaign: its parameters, the table of iterations, the outcomes."""
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw |= {of: {n: body for n, body in raw[of].items() if int(n) < 2} for of in ("iterations", "policies")}
    (folder / layout.METRICS).mkdir(parents=True, exist_ok=True)
    (folder / "params.yaml").write_text(yaml.safe_dump({**raw, "seed": seed}))
    write_json(rows, folder / layout.ITERATIONS)
    if table:
        for number in (0, 1):
            write_table(table.filter(pc.field("iteration") == number), folder / layout.outcomes(number))


@pytest.mark.parametrize("options", [(), ("--campaign", "{campaign}"), ("--seeds", "{campaign}")])
def test_the_page_is_written_again(finished, tmp_path, monkeypatch, options):
    """As the stage wrote it, from the campaign's folder or another, with links that lead to the gallery."""
    _, rows, _, table = finished
    own = pages(finished)["campaign.html"].decode().replace("../gallery/", "data/gallery/")
    stages_left(tmp_path, 1, rows, table)
    if options:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
    words = [word.format(campaign=tmp_path) for word in options]
    monkeypatch.setattr(sys, "argv", ["report", *words, "--out", str(tmp_path / "again.html")])
    report.main("agentprm report")
    again = (tmp_path / "again.html").read_text()
    shown, _, parameters = again.partition('<h2 id="parameters">')  # the fixture's are not those of the file
    assert shown == own.partition('<h2 id="parameters">')[0] and "<code>seed</code></td><td>1</td>" in parameters
    assert not options or not any(Path().iterdir())


def test_traces_of_one_game_stand_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("MLFLOW_ASYNC_TRACE_LOGGING_MAX_SPAN_BATCH_SIZE", "2000")  # as the sender has it
    turns = tuple(Turn(f"seen {t}", "look", ("look", "go"), True, f"s{t}") for t in range(2))
    told = [(Candidate("look", 0.75, (0.25,), True), Candidate("go", 0.25, (0.5,), False)) for _ in turns]
    games = [Game(name, "alfworld", "unseen", "pick", "put a mug", "") for name in ("a", "b")]
    shown = {
        g.id: [Shown(f"policy {i}", Episode(g.id, 0, 1, turns, i == 3), told, "end") for i in (0, 3)] for g in games
    }
    client, experiment = connect()
    store = SimpleNamespace(experiment=experiment, runs={"stage": "r"})
    as_json = json.loads(json.dumps(traces(games, shown, {"a": "gained"})))
    assert log_traces(store, traces=as_json[:1], prms=["PRM 3"]) == 1  # pyright: ignore[reportArgumentType]
    assert log_traces(store, traces=as_json, prms=["PRM 3"]) == 3  # pyright: ignore[reportArgumentType]
    assert log_traces(store, traces=as_json, prms=["PRM 3"]) == 0  # pyright: ignore[reportArgumentType]
    found = client.search_traces(locations=[experiment])
    sessions = sorted((t.info.trace_metadata["mlflow.trace.session"], t.info.tags["policy"]) for t in found)
    assert sessions == [("a", "policy 0"), ("a", "policy 3"), ("b", "policy 0"), ("b", "policy 3")]
    for trace in found:
        episode, *spans = trace.data.spans
        assert next(iter(episode.inputs.items())) == ("policy", trace.info.tags["policy"]), "a row shows its start"
        assert [span.outputs["action"] for span in spans] == ["look", "look"]
        assert [span.inputs["observation"] for span in spans] == ["seen 0", "seen 1"]
        assert spans[0].attributes["candidates"][1] == {"action": "go", "probability": 0.25, "q": [0.5]}
        said = {(a.name, a.span_id): a.value for a in trace.info.assessments}
        assert said["mean_q", None] == 0.25 and {said["q", span.span_id] for span in spans} == {0.25}
        assert said["won", None] == (trace.info.tags["policy"] == "policy 3")
    monkeypatch.setattr(tracing, "_record", lambda *_: None)
    elsewhere = SimpleNamespace(experiment=experiment, runs={"stage": "another"})
    with pytest.raises(MlflowException, match="MLflow has not kept 4 of 4 traces whole") as refused:
        log_traces(elsewhere, traces=as_json, prms=["PRM 3"])  # pyright: ignore[reportArgumentType]
    assert refused.value.error_code in NEVER, "what comes after it is sent"


def everything_shown() -> str:
    """A page of ``agentprm show`` with all that one can have: two policies that part, three PRMs, a tree, labels,
    branches, reasons, long texts and words."""
    one = episode(("a", "go"), ("b", "look"), ("c " * 400, "take"))
    turns = (
        *one.turns[:-1],
        one.turns[-1]._replace(reason="because " * 80, action="x" * 90, admissible=("go", "x" * 90)),
    )
    tree = [Weighed(("go",), 3, 0.9, 0.9, KEPT), Weighed(("look",), 1, 0.2, 0.2, MERGED),
            Weighed(("go", "take"), 2, 0.8, 0.8, KEPT), Weighed(("go", "look"), 2, 0.3, 0.3, BACK)]  # fmt: skip
    told = shown(
        dataclasses.replace(one, turns=turns), "a policy of a long name, beam_4x4", scores=3, tree=tree,
        labels={0: Label(0.75, 4, 0.01)}, branches={1: [ActionPlays("take", 0.83, 6, 7.5)]},
    )  # fmt: skip
    other = shown(episode(("a", "go"), ("b", "take"), ("d", "go"), won=False), "after", scores=3)
    return episode_page(GAME, [told, other], ["PRM 1", "PRM 2", "another PRM of a long name"])


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_in_a_browser(finished, tmp_path, width, scheme):
    """No error on the console, nothing wider than the screen, nothing asked of the network, tables sort."""
    for name, seconds in (("sft", 12.5), ("rollout@1", 20.0)):
        write_timing(name, campaign_id(finished[0].as_dict()), {"seconds": seconds, "orchestration": 1.0})
    pages(finished)
    amiss, asked = [], []
    with chromium_page(width, scheme=scheme) as page:
        page.on("console", lambda said: amiss.append(said.text))
        page.on("pageerror", lambda error: amiss.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        (tmp_path / "show.html").write_text(everything_shown())
        gallery_pages = (layout.GALLERY / "index.html", layout.GALLERY / "01.html")
        for path in (*gallery_pages, tmp_path / "show.html", layout.REPORTS / overview.PAGE):
            page.goto(path.resolve().as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            names = page.locator(".bars span").evaluate_all("of => of.filter(one => one.scrollWidth > one.clientWidth)")
            assert names == [], path  # of PRMs that differ in their last letters, say
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
            assert dark == (scheme == "dark")
        button = page.locator("#climb ~ div table th button").first
        button.click()
        button.click()
        first = page.locator("#climb ~ div table tbody tr").first.locator("td").first.inner_text()
        assert first == "1"
        times = page.locator("#cost ~ div table").first
        for least in ("12.5", "20.0"):
            times.locator("th button").nth(1).click()
            cells = times.locator("td:nth-child(2)").all_inner_texts()
            assert cells[0] == least and not any(cells[2:-1]) and cells[-1] == "32.5"  # empty ones last, the sum below
            left = times.evaluate(
                "table => (table.parentNode.scrollLeft = 60, table.rows[1].cells[0].getBoundingClientRect().left)"
            )
            assert 0 <= left < width / 10  # a row's name stays where the others scroll
        sides = "cells => cells.map(cell => getComputedStyle(cell).textAlign)"
        heads = page.locator("#climb ~ div table").first.locator("th").evaluate_all(sides)
        assert heads[0] == "right" and heads[1] == "left"  # as the numbers and the texts below them
        wide = page.locator("figure:not(.tall) img").first.evaluate("picture => picture.clientWidth")
        assert wide > 400  # else a phone shows nothing that can be read
        drawn = page.locator("figure img").first.evaluate("picture => getComputedStyle(picture).filter")
        assert (drawn == "none") == (scheme == "light")  # no white paper on a dark page
        page.goto((layout.GALLERY / "index.html").resolve().as_uri())
        tall = page.locator(".one").evaluate_all("lines => lines.map(line => line.clientHeight)")
        assert max(tall) < 30  # a policy and how it ended stand on one line
    assert amiss == [] and all(url.startswith(("file:", "data:")) for url in asked)


@pytest.mark.slow
def test_long_and_wide_tables_are_whole_on_the_screen_and_on_paper(finished):
    """On a screen only the width scrolls; on paper nothing is cut off."""
    for number in range(40):
        Path(f".scratch/gates/stage@{number}.json").write_text("[]")
    pages(finished)
    sizes = "tables => tables.map(of => [of.scrollHeight - of.clientHeight, of.scrollWidth - of.clientWidth])"
    with chromium_page(390) as page:
        page.goto((layout.REPORTS / overview.PAGE).resolve().as_uri())
        tall, wide = zip(*page.locator(".wide").evaluate_all(sizes))
        assert max(tall) == 0 and max(wide) > 500
        assert page.locator("#gates ~ div tbody tr").last.is_visible()
    with chromium_page(720) as page:  # A4 between its margins
        page.goto((layout.REPORTS / overview.PAGE).resolve().as_uri())
        page.emulate_media(media="print")
        assert page.locator(".wide").evaluate_all("of => of.map(one => getComputedStyle(one).overflow)")[0] == "visible"
        assert max(page.locator(".wide table").evaluate_all("of => of.map(one => one.clientWidth)")) < 720


@pytest.mark.slow
def test_the_pictures_of_the_documentation(finished, tmp_path):
    """``play.png`` is of a turn at which there is something to choose, and the campaign stays as it is."""
    _, _, _, table = finished
    if chromium() is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    for number in (0, 1):
        write_table(table.filter(pc.field("iteration") == number), layout.outcomes(number))
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["compute"] |= {"threads": 1, "slots": 8}
    raw["env"]["max_turns"] = 3
    raw |= {of: {n: body for n, body in raw[of].items() if int(n) < 2} for of in ("iterations", "policies")}
    Path("params.yaml").write_text(yaml.safe_dump(raw))
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    pictures.main(["--campaign", ".", "--out", str(tmp_path.parent / "pictures")])
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before
    for name in ("play", "show", "report"):
        path = tmp_path.parent / "pictures" / f"{name}.png"
        with Image.open(path) as picture:
            colours = picture.convert("RGB").getcolors(1 << 24)
            assert picture.width >= 1000 and len(colours) > 50  # pyright: ignore[reportArgumentType]
        assert path.stat().st_size < 200_000
    screen = pictures.undecided_turn().replace("&#160;", " ")
    assert "▶" in screen and "PRM&#x27;s Q" in screen and "×" in screen
    path.parent.rename(tmp_path / "pictures")  # goes with the test's folder
