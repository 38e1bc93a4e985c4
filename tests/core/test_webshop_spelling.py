"""How WebShop's pages and commands are spelt for a policy from scratch."""

from __future__ import annotations

from agentprm_core.policy.tokenizer import train_tokenizer
from agentprm_core.types import Episode, Game
from agentprm_core.worlds.demonstrations import demonstrate
from agentprm_core.worlds.webshop.games import generate_games
from agentprm_core.worlds.webshop.spec import WEBSHOP

BUTTONS = {
    f"click[{name}]" for name in ("back to search", "next >", "< prev", "description", "features", "reviews", "buy now")
}
"""They are few, and the same on every page."""


def _episode(game: Game) -> Episode:
    how = {"world_name": "webshop", "max_turns": 6, "seed": 1, "knowledge": 1.0, "corrupt": 0.0}
    return demonstrate(WEBSHOP.make(), game, **how)


def test_a_policy_from_scratch_copies_what_it_clicks_token_by_token() -> None:
    """Products, options and buttons have the same tokens on a page and in a command, also of a catalogue never seen."""
    taught = [_episode(game) for game in generate_games(40, 1, "train")]
    texts = sorted({text for episode in taught for turn in episode.turns for text in (turn.observation, turn.action)})
    tokenizer = train_tokenizer(texts, 1536, WEBSHOP.phrases, WEBSHOP.entity)

    def spelt(text: str) -> list[str]:
        return tokenizer.convert_ids_to_tokens(tokenizer.encode(text, add_special_tokens=False))

    assert spelt("click[b09xfkn71d]") == ["click[b0", "9x", "fk", "n7", "1d", "]"]
    title = "Hestia Deluxe Area Rugs with Easy Clean, Super Soft"
    shown = f"Page 1 (Total results: 50) [SEP] Next > [SEP] B09XFKN71D [SEP] {title}"
    first = "(total results: 50) [sep] next > [sep] b0"
    assert spelt(shown)[2:7] == [first, "9x", "fk", "n7", "1d"]
    assert spelt(shown)[-5:] == ["deluxe", "area rugs", "with", "easy clean", "super soft"]
    assert spelt("$8.99 [SEP] B09XFKN71D")[-5:] == ["[sep] b0", "9x", "fk", "n7", "1d"]
    for game in generate_games(10, 2, "unseen"):
        for turn in _episode(game).turns:
            page = spelt(turn.observation)
            for command in turn.admissible:
                if command.startswith("click[") and command not in BUTTONS:
                    named = spelt(command)[1:-1]
                    found = [page[at : at + len(named)] for at in range(len(page))]
                    assert named in found, command
