"""Monte Carlo labels for a million turns: by columns, beside a plain Python dictionary over JSON keys.

The rival does what the reference implementation of paper A does, in one process: for every turn it writes the whole
history and the action as JSON, digests that with SHA-256, and keeps a running mean in a dictionary. It is spared what
is not the method's: it reads the same Parquet shards, and keeps no copy of the state in the dictionary. Both write
their labels, which must agree. Each side runs in a process of its own, so that peak memory is its own.

    python -m benchmarks.labels --json
    python -m benchmarks.labels --turns 10000000 --json     # the dictionary gets the first million
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agentprm_core.arguments import any_seed, count
from benchmarks.resident import peak_mb

GAMMA, EPISODES_A_GAME, LONGEST, SHARD = 0.95, 16, 30, 250_000
RIVAL_TURNS = 1_000_000


def write_episodes(folder: Path, turns: int, seed: int) -> None:
    """Shards of synthetic episodes of ALFWorld's sizes: 16 a game, 8 to 30 turns, texts of 60 to 500 characters."""
    from agentprm_core.types import EPISODES

    rng, made, rows, game = np.random.default_rng(seed), 0, [], 0
    while made < turns:
        start = len(rows)
        for episode in range(EPISODES_A_GAME):
            rows += _episode(rng, f"train/task-{game // 8:06d}/trial-{game:08d}", game, episode)
        made += len(rows) - start
        game += 1
        if len(rows) >= SHARD or made >= turns:
            columns = dict(zip(EPISODES.names, map(list, zip(*rows))))
            shard = folder / f"{len(list(folder.iterdir())):05d}.parquet"
            pq.write_table(pa.table(columns, schema=EPISODES), shard, compression="zstd")
            rows = []


def _episode(rng: np.random.Generator, game_id: str, game: int, episode: int) -> list[tuple]:
    length, won = int(rng.integers(8, LONGEST + 1)), bool(rng.integers(2))
    places = ((rng.random(length) ** 3) * 20).astype(int).tolist()  # early choices are shared by many episodes
    things = ", a ".join(f"cabinet {i}" for i in range(game % 7 + 15))
    seen = f"You are in the middle of a room. You see a {things}.\n\nYour task is to: put mug {game} in cabinet."
    admissible, rows = [f"go to cabinet {i}" for i in range(20)], []
    for t, place in enumerate(places):
        action, last = f"go to cabinet {place}", t == length - 1
        end = (float(won and last), won and last, last, f"{game}-{place}-{t}", "digest")
        rows.append((1, "agentprm", game_id, game, episode, t, seen, action, "", admissible, True, *end))
        seen = f"You arrive at cabinet {place}. On the cabinet {place}, you see a plate {place + game}, and a mug {t}."
    return rows


def by_columns(folder: Path, out: Path, turns: int) -> int:
    from agentprm_core.credit.monte_carlo import label_monte_carlo

    options = dict(gamma=GAMMA, visit_key="history", validation_share=0.0, seed=0)
    return label_monte_carlo(folder, out, **options)["turns"]


def by_dictionary(folder: Path, out: Path, turns: int) -> int:
    """The rival, for the games that hold the first ``turns`` rows."""
    found: dict[str, dict[str, float]] = {}
    keys: list[tuple[str, int, int, str]] = []
    for episode in _episodes(folder):
        if len(keys) >= turns and episode[0]["game_id"] != keys[-1][0]:
            break
        _count(episode, found, keys)
    q = [(found[key]["mean"] + 1) / 2 for *_, key in keys]
    visits = [found[key]["count"] for *_, key in keys]
    names = ("game_id", "episode", "turn")
    pq.write_table(pa.table(dict(zip(names, zip(*(k[:3] for k in keys)))) | {"q": q, "visits": visits}), out)
    return len(keys)


def _episodes(folder: Path) -> Iterator[list[dict]]:
    columns, episode = ["game_id", "episode", "turn", "observation", "action", "admissible", "reward", "done"], []
    for shard in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(shard).iter_batches(4096, columns=columns):
            for row in batch.to_pylist():
                episode.append(row)
                if row["done"]:
                    yield episode
                    episode = []


def _count(episode: list[dict], found: dict, keys: list) -> None:
    outcome, history = 2 * episode[-1]["reward"] - 1, []
    for t, row in enumerate(episode):
        state = {"observation": row["observation"], "candidate_actions": row["admissible"], "history": history}
        text = json.dumps({"state": state, "action": row["action"]}, sort_keys=True)
        key = sha256(text.encode()).hexdigest()
        entry = found.setdefault(key, {"mean": 0.0, "count": 0})
        value = GAMMA ** (len(episode) - 1 - t) * outcome
        entry["mean"] = (entry["mean"] * entry["count"] + value) / (entry["count"] + 1)
        entry["count"] += 1
        keys.append((row["game_id"], row["episode"], row["turn"], key))
        history.append({"observation": row["observation"], "action": row["action"]})


SIDES = {"columns": by_columns, "dictionary": by_dictionary}


def measure(side: str, folder: Path, out: Path, turns: int) -> dict[str, float]:
    """One side in a process of its own: turns, seconds (reading and writing included, imports not), peak MB."""
    command = [sys.executable, "-m", "benchmarks.labels", "--side", side, "--turns", str(turns)]
    done = subprocess.run([*command, "--folder", folder, "--out", out], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"benchmarks.labels --side {side} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def run_side(side: str, folder: Path, out: Path, turns: int) -> dict[str, float]:
    import agentprm_core.credit.monte_carlo  # noqa: F401  (imports are not what is timed)

    start = time.perf_counter()
    done = SIDES[side](folder, out, turns)
    seconds = time.perf_counter() - start
    return {"turns": done, "seconds": seconds, "peak_mb": peak_mb()}


def disagreement(ours: Path, theirs: Path) -> float:
    """Largest |ΔQ̂| over the rival's rows. Raises ValueError where the visits differ."""
    b = pq.read_table(theirs)
    a = pq.read_table(ours, columns=b.column_names).slice(0, len(b))
    if any(a[name].to_pylist() != b[name].to_pylist() for name in ("game_id", "episode", "turn")):
        raise ValueError("the two sides labelled different turns")
    if not np.array_equal(a["visits"].to_numpy(), b["visits"].to_numpy()):
        raise ValueError("the two sides count different visits")
    return float(np.abs(a["q"].to_numpy() - b["q"].to_numpy()).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=count, default=1_000_000)
    parser.add_argument("--seed", type=any_seed, default=0)
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        print(json.dumps(run_side(given.side, given.folder, given.out, given.turns)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder, out = Path(scratch, "episodes"), Path(scratch)
        folder.mkdir()
        write_episodes(folder, given.turns, given.seed)
        ours = measure("columns", folder, out / "ours.parquet", given.turns)
        rival = measure("dictionary", folder, out / "rival.parquet", min(given.turns, RIVAL_TURNS))
        difference = disagreement(out / "ours.parquet", out / "rival.parquet")
    rate, rival_rate = ours["turns"] / ours["seconds"], rival["turns"] / rival["seconds"]
    report = {
        "speedup": round(rate / rival_rate, 1),
        "peak_mb": round(ours["peak_mb"]),
        "turns_per_s": round(rate),
        "turns": ours["turns"],
        "seconds": round(ours["seconds"], 2),
        "dictionary_turns": rival["turns"],
        "dictionary_turns_per_s": round(rival_rate),
        "dictionary_peak_mb": round(rival["peak_mb"]),
        "largest_difference": difference,
    }
    if not given.json:
        for name, value in report.items():
            print(f"{name:>24}  {value}")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
