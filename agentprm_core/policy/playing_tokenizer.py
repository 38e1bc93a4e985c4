"""Tokenizers of ours that only play: what :mod:`agentprm_core.policy.tokenizer` makes, without transformers' classes,
whose import takes most of a second."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from agentprm_core.errors import DataError

_FILE, _SETTINGS = "tokenizer.json", "tokenizer_config.json"


def has_plain_tokenizer(folder: Path) -> bool:
    """Whether :class:`PlayingTokenizer` says what transformers would with this checkpoint folder: there is no chat
    template, and decoded text stays as it is."""
    if not all((folder / name).is_file() for name in (_FILE, _SETTINGS)):
        return False
    settings = json.loads((folder / _SETTINGS).read_text())
    template = "chat_template" in settings or any(folder.glob("chat_template*"))
    return not template and settings.get("clean_up_tokenization_spaces") is False


class PlayingTokenizer:
    """What a renderer of the ``plain`` format asks of a tokenizer, under transformers' names.

    Raises:
        DataError: a file that cannot be read.
    """

    is_fast = True
    chat_template = None

    def __init__(self, folder: Path) -> None:
        self.name_or_path = str(folder)
        try:
            self.backend_tokenizer = Tokenizer.from_file(str(folder / _FILE))
        except Exception as error:  # the library raises nothing narrower
            said = f"{folder / _FILE}: this tokenizer cannot be loaded: {error}; restore the folder"
            raise DataError(said) from error
        settings = json.loads((folder / _SETTINGS).read_text())
        self.unk_token_id: int | None = self.backend_tokenizer.token_to_id(settings["unk_token"])

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size()

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        return self.backend_tokenizer.get_added_tokens_decoder()

    @property
    def all_special_ids(self) -> list[int]:
        return [token for token, what in self.added_tokens_decoder.items() if what.special]

    def get_vocab(self) -> dict[str, int]:
        return self.backend_tokenizer.get_vocab()

    def convert_tokens_to_ids(self, tokens: Sequence[str]) -> list[int | None]:
        """The unknown token's id for each that there is none of."""
        found = map(self.backend_tokenizer.token_to_id, tokens)
        return [self.unk_token_id if token is None else token for token in found]

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False) -> str:
        return self.backend_tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)
