"""What a chat model does when it is asked to: explore, say why afterwards, keep to an instruction.

    python -m benchmarks.chat_model --model models/chat --world babyai --games 200 --json

Three tables, each with 95 % intervals.

- **Instructions.** At one state of each game, drawn from the model's own greedy play, it is asked anew with a system
  message (:mod:`agentprm_core.chat.dialogues`): command only; not this command; or, after its reply, what the task is.
  Each share stands beside the share without the instruction.
- **Reasons.** At the same states it is told a command and asked why (:func:`agentprm_core.policy.prompt.hindsight`):
  its own command, and another one that is listed. Counted is how often the answer is the reason that the dialogues'
  rule gives for the command told (:func:`agentprm_core.chat.dialogues.reason_for`), and, as the control, the reason
  that the rule gives for the other one.
- **Steering.** The same games drawn at temperature 1 with and without the steering prompt: success, distinct states and
  distinct commands an episode, commands that are not admissible.

The last line printed is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist, mean, stdev
from typing import Any, cast

import torch

from agentprm_core.arguments import any_seed, count
from agentprm_core.chat.dialogues import ACTION_ONLY, FORBIDDEN, RECALL, reason_for
from agentprm_core.evaluate import wilson
from agentprm_core.policy.models import Checkpoint, load_checkpoint
from agentprm_core.policy.prompt import chat_message, chat_reply, hindsight, parse_reply
from agentprm_core.policy.sampler import Sampler
from agentprm_core.rollout import play, starts
from agentprm_core.types import Episode, Game
from agentprm_core.worlds import world_spec
from agentprm_core.worlds.base import listed_commands
from agentprm_core.worlds.game_sources import generated_by

BATCH = 16
"""Conversations answered together."""
MOST = 64
"""Tokens of an answer."""
Talk = list[dict[str, str]]


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All three tables."""
    torch.set_num_threads(args.threads)
    spec = world_spec(args.world)
    policy = load_checkpoint(args.model, prompt=spec.prompt)
    games = generated_by(spec, args.games, args.seed, args.split)
    greedy = played(policy, games, args, temperature=0.0)
    draws = random.Random(args.seed)
    states = [(episode, draws.randrange(episode.length)) for episode in greedy if episode.turns]
    goals = {game.id: game.goal for game in games}
    found = {
        "games": len(games),
        "greedy": share([episode.won for episode in greedy]),
        "instructions": instructions(policy, states, goals),
        "reasons": reasons(policy, states, goals, draws),
        "steering": steering(policy, games, args),
    }
    return found


def played(policy: Checkpoint, games: Sequence[Game], args: argparse.Namespace, temperature: float) -> list[Episode]:
    """One episode of each game, by free decoding, sorted by game."""
    how = {"context": args.context, "max_action_tokens": MOST, "constrained": False}
    sampler = Sampler(policy, slots=min(args.slots, len(games)), temperature=temperature, **how)
    begun = starts(games, 1, args.seed)
    found = play(sampler, begun, world_name=args.world, max_turns=args.max_turns)
    return sorted(found, key=lambda episode: episode.game_id)


def talk(policy: Checkpoint, episode: Episode, last: int) -> Talk:
    """The conversation up to what the world says at turn ``last``."""
    said: Talk = []
    for number, turn in enumerate(episode.turns[: last + 1]):
        asked = chat_message(turn.observation, number == 0, turn.admissible, policy.renderer.prompt)
        said += [{"role": "user", "content": asked}]
        said += [{"role": "assistant", "content": chat_reply(turn.action, turn.reason)}] if number < last else []
    return said


@torch.inference_mode()
def replies(policy: Checkpoint, talks: Sequence[Talk]) -> list[str]:
    """Greedy answers, in the order of ``talks``."""
    tokenizer, model = cast(Any, policy.tokenizer), cast(Any, policy.model)
    prompts = [
        tokenizer.apply_chat_template(each, add_generation_prompt=True, return_dict=True)["input_ids"] for each in talks
    ]
    order = sorted(range(len(prompts)), key=lambda n: len(prompts[n]))
    found = [""] * len(prompts)
    for batch in (order[first : first + BATCH] for first in range(0, len(order), BATCH)):
        longest = max(len(prompts[n]) for n in batch)
        ids = torch.tensor([[tokenizer.pad_token_id] * (longest - len(prompts[n])) + prompts[n] for n in batch])
        mask = torch.tensor([[0] * (longest - len(prompts[n])) + [1] * len(prompts[n]) for n in batch])
        ends = {"eos_token_id": policy.renderer.stop_token, "pad_token_id": tokenizer.pad_token_id}
        written = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=MOST, **ends)
        for n, tokens in zip(batch, written[:, longest:].tolist()):
            found[n] = tokenizer.decode(tokens, skip_special_tokens=True).strip()
    return found


def instructions(policy: Checkpoint, states: Sequence[tuple[Episode, int]], goals: dict[str, str]) -> dict[str, Any]:
    """How often each instruction is kept, beside how often that happens without it."""
    plain = [talk(policy, episode, last) for episode, last in states]
    first = replies(policy, plain)
    chosen = [parse_reply(reply)[1] for reply in first]
    only = replies(policy, [[system(ACTION_ONLY), *each] for each in plain])
    other = replies(policy, [[system(FORBIDDEN.format(command=c)), *each] for c, each in zip(chosen, plain)])
    answered = [[*each, {"role": "assistant", "content": reply}] for each, reply in zip(plain, first)]
    recalled = replies(policy, [[*each, {"role": "user", "content": RECALL}] for each in answered])
    listed = [listed_commands(episode.turns[last].admissible) for episode, last in states]
    instead = [parse_reply(reply)[1] for reply in other]
    return {
        "command only": {
            "kept": share(["REASON" not in reply for reply in only]),
            "without": share(["REASON" not in reply for reply in first]),
            "admissible": share([parse_reply(reply)[1] in of for reply, of in zip(only, listed)]),
        },
        "not this command": {
            "kept": share([now != before for now, before in zip(instead, chosen)]),
            "without": share([False for _ in chosen]),
            "admissible": share([now in of for now, of in zip(instead, listed)]),
        },
        "say the task": {
            "kept": share([reply == goals[episode.game_id] for reply, (episode, _) in zip(recalled, states)]),
            "without": share([reply == goals[episode.game_id] for reply, (episode, _) in zip(first, states)]),
        },
    }


def reasons(
    policy: Checkpoint, states: Sequence[tuple[Episode, int]], goals: dict[str, str], draws: random.Random
) -> dict[str, Any]:
    """How often a reason given afterwards is the rule's for the command told: the model's own, and another. States at
    which both have one reason tell nothing and are left out."""
    told: list[tuple[Talk, str, str, bool]] = []
    for episode, last in states:
        turn, goal = episode.turns[last], goals[episode.game_id]
        rest = [each for each in listed_commands(turn.admissible) if each != turn.action]
        if not turn.valid or not rest:
            continue
        pair = (turn.action, draws.choice(rest))
        right = [reason_for(goal, each) for each in pair]
        if right[0] == right[1]:
            continue
        before = talk(policy, episode, last)
        for number, each in enumerate(pair):
            asked = {"role": "user", "content": before[-1]["content"] + hindsight(each)}
            told.append(([*before[:-1], asked], right[number], right[1 - number], number == 0))
    said = [reply.removeprefix("REASON:").strip() for reply in replies(policy, [each[0] for each in told])]
    found = {}
    for name, own in (("its own command", True), ("another command", False)):
        mine = [(reply, right, wrong) for reply, (_, right, wrong, is_own) in zip(said, told) if is_own == own]
        found[name] = {
            "of the command told": share([reply == right for reply, right, _ in mine]),
            "of the other one": share([reply == wrong for reply, _, wrong in mine]),
        }
    return found


def steering(policy: Checkpoint, games: Sequence[Game], args: argparse.Namespace) -> dict[str, Any]:
    """What the steering prompt changes, on the same games."""
    told = {"plain": policy, "steered": replace(policy, renderer=policy.renderer.steered())}
    both = {name: played(each, games, args, temperature=1.0) for name, each in told.items()}
    counts: dict[str, Callable[[Episode], float]] = {
        "won": lambda episode: float(episode.won),
        "states": lambda episode: float(len({turn.state_key for turn in episode.turns})),
        "commands": lambda episode: float(len({turn.action for turn in episode.turns})),
        "actions": lambda episode: float(episode.length),
        "inadmissible": lambda episode: mean([not turn.valid for turn in episode.turns]),
    }
    found: dict[str, Any] = {}
    for name, counted in counts.items():
        values = {way: [counted(episode) for episode in episodes] for way, episodes in both.items()}
        apart = [b - a for a, b in zip(values["plain"], values["steered"], strict=True)]
        found[name] = {way: round(mean(of), 3) for way, of in values.items()} | {"difference": centre(apart)}
    return found


def system(content: str) -> dict[str, str]:
    return {"role": "system", "content": content}


def share(flags: Sequence[bool]) -> dict[str, Any]:
    """A share with its Wilson interval."""
    kept, count = sum(flags), len(flags)
    low, high = wilson(kept, count) if count else (0.0, 1.0)
    return {"share": round(kept / count, 3) if count else None, "ci": [round(low, 3), round(high, 3)], "n": count}


def centre(values: Sequence[float]) -> dict[str, Any]:
    """A mean with the normal interval of it."""
    half = NormalDist().inv_cdf(0.975) * stdev(values) / math.sqrt(len(values))
    middle = mean(values)
    return {"mean": round(middle, 3), "ci": [round(middle - half, 3), round(middle + half, 3)], "n": len(values)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chat_model", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--model", type=Path, required=True, help="folder of a chat model, or of a policy trained from one"
    )
    parser.add_argument("--world", default="babyai", help="(default %(default)s)")
    parser.add_argument("--split", default="unseen", choices=("train", "seen", "unseen"), help="(default %(default)s)")
    parser.add_argument("--games", type=count, default=200, help="(default %(default)s)")
    parser.add_argument("--max-turns", type=count, default=20, help="(default %(default)s)")
    parser.add_argument("--context", type=count, default=4096, help="(default %(default)s)")
    parser.add_argument("--slots", type=count, default=64, help="(default %(default)s)")
    parser.add_argument("--seed", type=any_seed, default=1)
    parser.add_argument("--threads", type=count, default=2, help="(default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the JSON object alone, without line breaks")
    args = parser.parse_args()
    found = measure(args)
    print(json.dumps(found) if args.json else json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
