"""InversePRM: the loss by hand, alignment of resampled actions, no outcome read, and a Q that prefers the expert."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from agentprm_core.credit.expert_and_learner import INVERSE, RESAMPLED, assemble_inverse, episode_weights, inverse_loss
from agentprm_core.datasets import REPLAYED
from tests.core.corridor import table

DEMOS = (("g", 0, ["a", "b", "c"], True), ("g", 1, ["a"], True), ("h", 0, ["a", "d"], True))
LEARNT = (("g", 0, ["x", "y"], False), ("h", 3, ["x"], True))


def resampled_for(demos):
    """A made-up action for the state of each turn but the first, which says where it was sampled."""
    return pa.table(
        dict(
            zip(
                RESAMPLED.names,
                zip(*((g, e, t, f"{g}{e} at {t}", "") for g, e, actions, _ in demos for t in range(1, len(actions)))),
            )
        ),
        schema=RESAMPLED,
    )


def assemble(tmp_path, demos=DEMOS, learnt=(LEARNT,), resampled=None, reward=None, share=0.0):
    def write(name, episodes):
        rows = table(*episodes)
        if reward is not None:
            noise = pa.array(reward(len(rows)), pa.float32())
            rows = rows.set_column(rows.column_names.index("reward"), "reward", noise)
            rows = rows.set_column(rows.column_names.index("done"), "done", pa.array(noise.to_numpy() > 0.5))
        pq.write_table(rows, tmp_path / name)
        return tmp_path / name

    paths = [write(f"learner-{i}.parquet", episodes) for i, episodes in enumerate(learnt)]
    sampled = resampled_for(demos) if resampled is None else resampled
    return assemble_inverse(write("demos.parquet", demos), paths, sampled, validation_share=share, seed=1)


def test_rows(tmp_path):
    rows = assemble(tmp_path, learnt=(LEARNT, (("g", 0, ["z", "z"], False),)))
    assert rows.schema.equals(INVERSE)
    columns = ("dataset", "game_id", "episode", "turn", "action", "next_action", "terminal", "expert")
    assert [tuple(row[c] for c in columns) for row in rows.to_pylist()] == [
        (0, "g", 0, 0, "a", "g0 at 1", False, True),
        (0, "g", 0, 1, "b", "g0 at 2", False, True),
        (0, "g", 0, 2, "c", None, True, True),
        (0, "g", 1, 0, "a", None, True, True),  # a one-turn episode has no next state, and shifts nobody
        (0, "h", 0, 0, "a", "h0 at 1", False, True),
        (0, "h", 0, 1, "d", None, True, True),
        (1, "g", 0, 0, "x", "y", False, False),
        (1, "g", 0, 1, "y", None, True, False),
        (1, "h", 3, 0, "x", None, True, False),
        (2, "g", 0, 0, "z", "z", False, False),
        (2, "g", 0, 1, "z", None, True, False),
    ]


def test_no_outcome_is_read(tmp_path):
    plain = assemble(tmp_path)
    rng = np.random.default_rng(0)
    for _ in range(3):
        assert assemble(tmp_path, reward=rng.random).equals(plain)


def test_the_order_of_resampled_actions_does_not_matter(tmp_path):
    resampled = resampled_for(DEMOS)
    backwards = resampled.take(list(range(len(resampled)))[::-1])
    assert assemble(tmp_path, resampled=backwards).equals(assemble(tmp_path))


def test_classes_weigh_by_episodes():
    expert = np.array([True] * 6 + [False] * 3)
    starts = np.array([1, 0, 0, 1, 1, 0, 1, 0, 1], bool)  # 3 expert episodes, 2 learner's
    weight = episode_weights(expert, starts)
    assert weight.mean() == pytest.approx(1)
    assert weight[0] / weight[-1] == pytest.approx((1 / 3) / (1 / 2))
    with pytest.raises(ValueError, match="inverse: 3 expert and 0 learner episodes"):
        episode_weights(expert[:6], starts[:6])


def test_loss_by_hand_and_gradient_through_both():
    q = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
    after = torch.tensor([1.0, 0.0, float("nan")], requires_grad=True)
    terminal, expert = torch.tensor([False, False, True]), torch.tensor([True, False, False])
    weight = torch.tensor([1.0, 2.0, 1.0])
    loss = inverse_loss(q, after, terminal, expert, weight, gamma=0.5)
    softplus = lambda x: np.log1p(np.exp(x))  # noqa: E731
    assert loss.item() == pytest.approx((softplus(-0.0) + 2 * softplus(-1.0) + softplus(2.0)) / 4)
    loss.backward()
    assert q.grad.tolist() == pytest.approx([-0.5 / 4, 2 * 0.26894 / 4, 0.88080 / 4], abs=1e-4)
    assert after.grad.tolist() == pytest.approx([0.25 / 4, -2 * 0.13447 / 4, 0.0], abs=1e-4)


def test_on_a_corridor_the_experts_way_gets_the_higher_q(tmp_path):
    """The expert goes right from cell 2 to 5; the learner goes anywhere. Tabular Q, actions resampled at random."""
    rng = np.random.default_rng(0)

    def walk(go):
        cell, actions = 2, []
        while 0 < cell < 5 and len(actions) < 12:
            actions.append(go())
            cell += 1 if actions[-1] == "right" else -1
        return actions

    demos = [("g", i, walk(lambda: "right"), True) for i in range(40)]
    learnt = [("g", i, walk(lambda: str(rng.choice(["left", "right"]))), False) for i in range(40)]
    at = [(g, e, t, str(rng.choice(["left", "right"])), "") for g, e, a, _ in demos for t in range(1, len(a))]
    resampled = pa.table(dict(zip(RESAMPLED.names, map(list, zip(*at)))), schema=RESAMPLED)
    rows = assemble(tmp_path, demos, (learnt,), resampled).to_pandas()
    number = {"left": 0, "right": 1}
    move = rows["action"].map({"left": -1, "right": 1})
    cell = 2 + move.groupby([rows["dataset"], rows["episode"]]).cumsum() - move
    s, a = torch.tensor(cell.to_numpy()), torch.tensor(rows["action"].map(number).to_numpy())
    after = (s + 2 * a - 1).clamp(0, 5)
    a2 = torch.tensor(rows["next_action"].map(number).fillna(0).to_numpy().astype(int))
    terminal, expert, weight = (torch.tensor(rows[c].to_numpy()) for c in ("terminal", "expert", "weight"))
    q = torch.zeros(6, 2, requires_grad=True)
    optimiser = torch.optim.Adam([q], lr=0.1)
    for _ in range(300):
        optimiser.zero_grad()
        inverse_loss(q[s, a], q[after, a2], terminal, expert, weight, gamma=0.95).backward()
        optimiser.step()
    assert (q[2:5, 1] > q[2:5, 0] + 0.5).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.slice(1), r"no action resampled at the state after game g, episode 0, turn 0 \(1 such turns\)"),
        (lambda r: pa.concat_tables([r, r.slice(0, 1)]), "game g, episode 0, turn 1 has two resampled actions"),
    ],
)
def test_resampled_actions_must_fit(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        assemble(tmp_path, resampled=change(resampled_for(DEMOS)))


def test_turns_must_be_whole(tmp_path):
    rows = table(*DEMOS)
    pq.write_table(rows.filter(pa.array([True, False] + [True] * 4)), tmp_path / "demos.parquet")
    with pytest.raises(ValueError, match="game g, episode 0, turn 2: turns of an episode must run"):
        assemble_inverse(tmp_path / "demos.parquet", [], resampled_for(DEMOS), validation_share=0.0, seed=1)


def test_turns_that_led_to_an_episodes_start_are_in_neither_class(tmp_path):
    rows = table(("g", 0, ["x", "y", "z"], False), ("h", 0, ["x"], False))
    methods = pa.array([REPLAYED, "policy", "policy", "policy"])
    pq.write_table(rows.set_column(rows.column_names.index("method"), "method", methods), tmp_path / "learner.parquet")
    pq.write_table(table(*DEMOS), tmp_path / "demos.parquet")
    found = assemble_inverse(
        tmp_path / "demos.parquet", [tmp_path / "learner.parquet"], resampled_for(DEMOS), validation_share=0.0, seed=1
    ).to_pylist()
    learnt = [(row["game_id"], row["turn"], row["next_action"]) for row in found if not row["expert"]]
    assert learnt == [("g", 1, "z"), ("g", 2, None), ("h", 0, None)]
    assert found[0]["weight"] / found[-1]["weight"] == pytest.approx((1 / 3) / (1 / 2))  # 3 and 2 episodes


def test_of_the_learners_the_lost_episodes_alone_where_that_is_asked_for(tmp_path):
    """Weights follow the episodes that are left."""
    learnt = (("g", 0, ["x", "y"], True), ("g", 1, ["x"], False), ("h", 0, ["z"], False), ("h", 1, ["z", "x"], True))
    for name, episodes in (("demos", DEMOS), ("learner", learnt)):
        pq.write_table(table(*episodes), tmp_path / f"{name}.parquet")
    paths, sampled = (tmp_path / "demos.parquet", [tmp_path / "learner.parquet"]), resampled_for(DEMOS)
    found = assemble_inverse(*paths, sampled, validation_share=0.0, seed=1, lost_only=True).to_pylist()
    assert [(row["game_id"], row["episode"]) for row in found if not row["expert"]] == [("g", 1), ("h", 0)]
    assert found[0]["weight"] / found[-1]["weight"] == pytest.approx((1 / 3) / (1 / 2))  # 3 and 2 episodes
    whole = assemble_inverse(*paths, sampled, validation_share=0.0, seed=1)
    assert whole.num_rows == len(found) + 4


def test_a_game_is_on_one_side_and_the_classes_balance_on_each(tmp_path):
    games = [f"game {n}" for n in range(40)]
    demos = tuple((game, 0, ["a", "b"], True) for game in games)
    learnt = tuple((game, e, ["x"], False) for game in games for e in range(3))
    rows = assemble(tmp_path, demos, (learnt,), share=0.4).to_pandas()
    assert (rows.groupby("game_id")["split"].nunique() == 1).all()
    for _, side in rows.groupby("split"):
        starts = side[side["turn"] == 0]
        by_class = starts.groupby("expert")["weight"].sum()
        assert by_class[True] == pytest.approx(by_class[False], rel=1e-4)
