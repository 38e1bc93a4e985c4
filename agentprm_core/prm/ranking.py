"""Does a process reward model know which *action* is better? Measured at states where several actions were tried.

Correlation with returns across states says little about it: a model may know that the mug is found and the microwave is
near, and still not tell opening it from walking away. Best-of-N and the policy update live on the order within a state.

The truth is not known, only the returns of a few plays of each action. So how well the plays themselves do is measured
beside the model, with the plays of every action parted in two halves: one half judges, the other is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from agentprm_core.policy.prompt import Renderer
from agentprm_core.prm.model import likelihood_alone, reads_likelihood
from agentprm_core.prm.rows import Labelled
from agentprm_core.prm.score import score_actions

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MARGIN = 0.2
"""Pairs of actions whose measured returns differ by no more do not decide whether a PRM ranks: the standard error of
the difference of two means of six plays is about this much."""
FEWEST_GAMES = 6
"""With fewer the bootstrap cannot tell: where they happen to agree its interval has no width, and all of five games do
so by chance more often than in 2.5 % of cases (½⁵)."""
_RESAMPLES = 2000


def ranked(
    prm: PreTrainedModel,
    renderer: Renderer,
    held_out: Sequence[Labelled],
    *,
    batch_tokens: int,
    seed: int,
    policy: PreTrainedModel | None = None,
) -> dict:
    """A PRM's order of the actions tried at held-out states, against that of their measured returns.

    ``ranking`` leaves out pairs whose returns differ by :data:`MARGIN` or less; whoever follows a PRM asks this one.
    ``ranking_of_all`` has every pair. ``choosing``: what the PRM's favourite returned beyond the mean action, and what
    the one that other plays find best did.

    With ``policy``, the control that learnt nothing: ``ranking_by_likelihood`` where its own log-likelihood orders the
    actions, and ``ranking_over_likelihood``, what the PRM has beyond it (:func:`ranking_difference`). Both are left out
    for a policy whose likelihood is not read so (:func:`agentprm_core.prm.model.reads_likelihood`)."""
    branched = [item for item in held_out if item.tried]
    actions = [[(tried.turn, tried.action, tried.reason) for tried in item.tried] for item in branched]
    state = [f"{item.episode.game_id}/{item.episode.index}/{tried.turn}" for item in branched for tried in item.tried]
    returns = np.array([tried.returns for item in branched for tried in item.tried])
    how = {"seed": seed, "game_N": [item.episode.game_id for item in branched for _ in item.tried]}

    def scored(model: PreTrainedModel) -> np.ndarray:
        scores = score_actions(model, renderer, [item.episode for item in branched], actions, batch_tokens)
        return np.concatenate(scores) if scores else np.empty(0)

    ours = scored(prm)
    figures = {
        "ranking": ranking_accuracy(state, returns, ours, margin=MARGIN, **how),
        "ranking_of_all": ranking_accuracy(state, returns, ours, **how),
        "choosing": choice_gain(state, returns, ours, **how),
    }
    if policy is None or not reads_likelihood(policy):
        return figures
    control = scored(likelihood_alone(policy))
    return figures | {
        "ranking_by_likelihood": ranking_accuracy(state, returns, control, margin=MARGIN, **how),
        "ranking_over_likelihood": ranking_difference(state, returns, ours, control, margin=MARGIN, **how),
    }


def judged_by(figures: Mapping) -> Mapping:
    """The ranking that says whether a PRM may be followed: on guard games, ``figures["guard"]``, where the campaign has
    them, else on validation games, which are of the places that the PRM was trained in."""
    return (figures.get("guard") or figures)["ranking"]


def in_short(ranking: Mapping) -> str:
    """:func:`ranking_accuracy`'s figures in a few words."""
    if ranking["accuracy"] is None:
        return "no pair of actions to order"
    share, low, high = (100 * ranking[name] for name in ("accuracy", "accuracy_low", "accuracy_high"))
    return f"{share:.0f} % [{low:.0f}, {high:.0f}] of {ranking['pairs']} pairs"


def in_words(figures: Mapping) -> str:
    """How a PRM ranks, and where it is known the policy's likelihood beside it, as a line of a log."""
    said = f"it orders {in_short(figures['ranking'])}"
    if not figures.get("ranking_by_likelihood"):
        return said
    said += f"; the policy's own likelihood {in_short(figures['ranking_by_likelihood'])}"
    over = figures["ranking_over_likelihood"]
    if over["difference"] is None:
        return said
    points = [100 * over[name] for name in ("difference", "difference_low", "difference_high")]
    verdict = "it ranks better" if points[1] > 0 else "it ranks worse" if points[2] < 0 else "no difference that shows"
    return said + f"; on the same pairs {points[0]:+.1f} points [{points[1]:+.1f}, {points[2]:+.1f}]: {verdict}"


def ranking_accuracy(
    state_N: Sequence,
    return_NR: np.ndarray,
    score_N: np.ndarray,
    *,
    seed: int,
    margin: float = 0.0,
    game_N: Sequence | None = None,
) -> dict:
    """How often scores order two actions of one state as their measured returns do, over N tried actions.

    A pair counts where the mean returns differ by more than ``margin``; equal scores are right by half. ``accuracy`` is
    by the means of all R plays. ``half_accuracy`` and ``ceiling`` are by the means of ⌊R/2⌋ plays, which pick and order
    the pairs; the scores are judged by them in the one, and in the other the means of ⌊R/2⌋ other plays of the same
    actions in the scores' place. So ``ceiling`` is what a judge scores that plays each action as often, and what
    ``half_accuracy`` can be held against; one that knew the true values would score above it, and below 1. Both are
    over the same pairs, added up over the R ways to part the plays in two neighbouring halves.

    Args:
        state_N: which state each action was tried at (any hashable, sortable names).
        return_NR: return of each of the R rollouts that began with the action.
        score_N: the PRM's score of it.
        seed: of the bootstrap.
        margin: pairs whose returns differ by no more are left out: noise orders them.
        game_N: which game each state is of. States of one game share its layout and its task, so the bootstrap draws
            games; None: every state is of a game of its own.

    Returns:
        ``games``, ``states`` and ``pairs`` compared by all plays; ``accuracy``; ``half_accuracy`` and ``ceiling`` over
        ``half_pairs``, the mean number of pairs of a half; each share with its 95 % bootstrap interval over games
        (``accuracy_low``, ``accuracy_high`` …), None without a pair or a second play; and ``better_than_chance``, see
        :func:`better_than_chance`.

    Raises:
        ValueError: arrays of different lengths.
    """
    states, game_S = _by_state(state_N, return_NR, score_N, game_N)
    whole_S2 = np.array([_in_order(_mean(of), score, margin) for of, score in states], np.float64).reshape(-1, 2)
    half_S3 = np.array([_halves_in_order(of, score, margin) for of, score in states], np.float64).reshape(-1, 3)
    compared_S = whole_S2[:, 1] > 0
    figures = {"games": len(np.unique(game_S[compared_S])), "states": int(compared_S.sum())}
    figures |= {"pairs": int(whole_S2[:, 1].sum())}
    figures |= shares({"accuracy": whole_S2[:, 0]}, whole_S2[:, 1], game_S, seed)
    figures |= {"half_pairs": float(half_S3[:, 2].sum())}
    figures |= shares({"half_accuracy": half_S3[:, 0], "ceiling": half_S3[:, 1]}, half_S3[:, 2], game_S, seed)
    return figures | {"better_than_chance": better_than_chance(figures)}


def ranking_difference(
    state_N: Sequence,
    return_NR: np.ndarray,
    score_N: np.ndarray,
    other_N: np.ndarray,
    *,
    seed: int,
    margin: float = 0.0,
    game_N: Sequence | None = None,
) -> dict:
    """How many more of the same pairs ``score_N`` orders right than ``other_N``. Other arguments as above.

    Returns:
        ``pairs``; ``difference`` of the two accuracies, in [−1, 1], with its 95 % bootstrap interval over games
        (``difference_low``, ``difference_high``), None without a pair. The bootstrap draws both together: the two
        accuracies rise and fall with the same games, so their own intervals say less than this one.
    """
    sides = []
    for score in (score_N, other_N):
        states, game_S = _by_state(state_N, return_NR, score, game_N)
        sides.append(np.array([_in_order(_mean(of), one, margin) for of, one in states], np.float64).reshape(-1, 2))
    (ours_S2, other_S2), of_S = sides, sides[0][:, 1]
    difference = shares({"difference": ours_S2[:, 0] - other_S2[:, 0]}, of_S, game_S, seed)
    return {"pairs": int(of_S.sum())} | difference


def choice_gain(
    state_N: Sequence,
    return_NR: np.ndarray,
    score_N: np.ndarray,
    *,
    seed: int,
    game_N: Sequence | None = None,
) -> dict:
    """How much more the best-scored action returns than the mean one tried at its state. Arguments as above.

    Returns:
        ``states`` with more than one action. ``gain``: of the PRM's favourite, mean over states. ``headroom``: of the
        action that returned most in ⌊R/2⌋ plays, as it returned in ⌊R/2⌋ others: what choosing by so many plays gains,
        at the most as much as choosing by the true values. (The best return by the plays that found it the best is
        above the mean in pure noise too.) Each with its 95 % bootstrap interval over games, None where there is none.
    """
    every, game_S = _by_state(state_N, return_NR, score_N, game_N)
    game_S = np.array([game for game, one in zip(game_S, every) if len(one[1]) > 1])
    states = [one for one in every if len(one[1]) > 1]
    gain_S = np.array([_advantage(_mean(of), score) for of, score in states], np.float64)
    headroom_S = np.array(
        [np.mean([_advantage(judge, judged) for judge, judged in _halves(of)]) for of, _ in states if of.shape[1] > 1],
        np.float64,
    )
    figures = {"states": len(states)} | shares({"gain": gain_S}, np.ones_like(gain_S), game_S, seed)
    return figures | shares({"headroom": headroom_S}, np.ones_like(headroom_S), game_S[: len(headroom_S)], seed)


def better_than_chance(figures: dict) -> bool:
    """Whether the whole interval of the accuracy lies above ½. Pairs of fewer than :data:`FEWEST_GAMES` games: no."""
    return figures["games"] >= FEWEST_GAMES and figures["accuracy_low"] > 0.5


def _by_state(
    state_N: Sequence, return_NR: np.ndarray, score_N: np.ndarray, game_N: Sequence | None
) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """(returns [A, R], scores [A]) of each state's A actions, and the number of each state's game."""
    game_N = state_N if game_N is None else game_N
    if not len(state_N) == len(return_NR) == len(score_N) == len(game_N):
        raise ValueError(
            f"{len(state_N)} states, {len(return_NR)} rows of returns, {len(score_N)} scores and {len(game_N)} games; "
            "they must be one each"
        )
    _, number_N = np.unique(np.asarray(state_N), return_inverse=True)
    _, played_N = np.unique(np.asarray(game_N), return_inverse=True)
    order = np.argsort(number_N, kind="stable")
    members = [of for of in np.split(order, np.flatnonzero(np.diff(number_N[order])) + 1) if len(of)]
    return [(return_NR[of], score_N[of]) for of in members], np.array([played_N[of[0]] for of in members])


def _halves(return_AR: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(mean [A] that judges, mean [A] that is judged) for each way to part the plays in two neighbouring halves."""
    plays = return_AR.shape[1]
    half = plays // 2
    for first in range(plays if half else 0):
        turned_AR = np.roll(return_AR, -first, axis=1)
        yield _mean(turned_AR[:, :half]), _mean(turned_AR[:, half : 2 * half])


def _mean(return_AR: np.ndarray) -> np.ndarray:
    # rounded, so that the same returns in another order are no difference
    return return_AR.mean(1, dtype=np.float64).astype(np.float32).astype(np.float64)


def _halves_in_order(return_AR: np.ndarray, score_A: np.ndarray, margin: float) -> tuple[float, float, float]:
    """(pairs that the scores order right, those that other plays do, pairs), means over the ways to part the plays."""
    found = [
        (_in_order(judge, score_A, margin)[0], *_in_order(judge, judged, margin))
        for judge, judged in _halves(return_AR)
    ]
    return tuple(np.mean(found, axis=0)) if found else (0.0, 0.0, 0.0)


def _in_order(q_A: np.ndarray, score_A: np.ndarray, margin: float) -> tuple[float, int]:
    """(pairs in order, pairs) of one state's actions."""
    better_AA = q_A[:, None] - q_A[None, :] > margin
    apart_AA = np.sign(score_A[:, None] - score_A[None, :])
    return (better_AA * (apart_AA + 1) / 2).sum(), better_AA.sum()


def _advantage(q_A: np.ndarray, score_A: np.ndarray) -> float:
    """Of the best-scored action over the state's mean one."""
    return q_A[score_A == score_A.max()].mean() - q_A.mean()


def shares(right: dict[str, np.ndarray], of_S: np.ndarray, game_S: np.ndarray, seed: int) -> dict:
    """{name: Σ right / Σ of} over states, with the percentile interval of a bootstrap over the games of those that
    count: a game that is drawn brings all its states."""
    counts = of_S > 0
    names = [(name, f"{name}_low", f"{name}_high") for name in right]
    if not counts.any():
        return {key: None for keys in names for key in keys}
    _, game_C = np.unique(game_S[counts], return_inverse=True)
    games = int(game_C.max()) + 1
    weights_RG = np.random.default_rng(seed).multinomial(games, np.full(games, 1 / games), _RESAMPLES)
    of_G = np.bincount(game_C, of_S[counts])
    figures = {}
    for (name, low, high), right_S in zip(names, right.values()):
        values_R = (weights_RG @ np.bincount(game_C, right_S[counts])) / (weights_RG @ of_G)
        figures[name] = float(right_S[counts].sum() / of_S[counts].sum())
        figures[low], figures[high] = np.percentile(values_R, [2.5, 97.5]).tolist()
    return figures
