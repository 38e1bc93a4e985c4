"""A process reward model behind a server, as a scorer of searches: vLLM's pooling API.

``/pooling`` with ``task: token_classify`` answers with the score of every token of a text; the text ends with the
candidate's end mark, so its last token's score is the candidate's. For PRMs trained here (plain rendering) with
``prm.likelihood: 0``: the log-likelihood that others add is not among the answers, and nobody here could tell. The
histories are sent whole each time: the server's prefix cache, not this client, keeps them from being read again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentprm_core.policy.decoding import Decision
from agentprm_core.policy.requests import Patience, Requests
from agentprm_core.policy.server import conversation_text

PATH = "/pooling"


class ServerScorer:
    """Q_φ(s, a) in (0, 1) from the PRM ``model`` at ``url`` (for vLLM without ``/v1``). Close it when done."""

    def __init__(self, url: str, model: str, *, at_once: int, patience: Patience, api_key: str | None = None) -> None:
        """``at_once``: requests under way, one for each state that is scored."""
        self._model = model
        self._requests = Requests(url, at_once=at_once, patience=patience, api_key=api_key)
        self._said: dict[int, tuple[str, ...]] = {}
        self._read: dict[int, int] = {}
        self._opened = 0

    def shut_down(self) -> None:
        self._requests.close()

    def open(self, seed: int) -> int:
        return self._keep(())

    def fork(self, seat: int) -> int:
        return self._keep(self._said[seat])

    def see(self, seat: int, observation: str, admissible: tuple[str, ...]) -> bool:
        """Always True: the policy's context decides, the PRM's must not be smaller."""
        self._said[seat] += (observation,)
        return True

    def tell(self, seat: int, action: str, reason: str = "") -> None:
        self._said[seat] += (action,)

    def close(self, seat: int) -> int:
        """Tokens the server was sent."""
        del self._said[seat]
        return self._read.pop(seat)

    def score(self, asked: Sequence[tuple[int, Sequence[Decision]]]) -> list[list[float]]:
        """One request a state, all at once. Raises :class:`agentprm_core.policy.requests.ServerError`."""
        sent = [(seat, self._body(seat, candidates)) for seat, candidates in asked]
        answers = [self._requests.post(PATH, body, _name(body)) for _, body in sent]
        return [self._scores(seat, body, answer.result()) for (seat, body), answer in zip(sent, answers)]

    def _body(self, seat: int, candidates: Sequence[Decision]) -> dict:
        texts = [conversation_text((*self._said[seat], candidate.action)) for candidate in candidates]
        return {"model": self._model, "task": "token_classify", "use_activation": False, "input": texts}

    def _scores(self, seat: int, body: dict, answer: dict) -> list[float]:
        try:
            rows = [row["data"] for row in sorted(answer["data"], key=lambda row: row["index"])]
            logits = [row[-1][0] for row in rows]
        except (KeyError, IndexError, TypeError) as error:
            raise self._requests.misread(PATH, _name(body), answer, error) from error
        self._read[seat] += sum(map(len, rows))
        return [1 / (1 + math.exp(-logit)) for logit in logits]

    def _keep(self, said: tuple[str, ...]) -> int:
        self._opened += 1
        self._said[self._opened], self._read[self._opened] = said, 0
        return self._opened


def _name(body: dict) -> str:
    return f"model {body['model']!r}, {len(body['input'])} candidates, the last ending in {body['input'][-1][-80:]!r}"
