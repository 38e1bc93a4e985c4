"""From what a file says to dataclasses: unions, ranges, and refusals that name the whole key."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentprm_core.config import Count, Range, Share
from tasks.frame.validation import Refused, build, keys_of


@dataclass(frozen=True)
class Resets:
    resets: Share


@dataclass(frozen=True)
class Bonus:
    bonus: Annotated[float, Range(gt=0)]
    decay: float


@dataclass(frozen=True)
class Inner:
    count: Count
    low: float
    high: float

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low: {self.low} is not allowed: at most high, {self.high}")


@dataclass(frozen=True)
class Outer:
    kind: Literal["a", "b"]
    inner: Inner
    explore: Resets | Bonus | None
    names: tuple[str, ...]
    several: dict[str, Resets]
    flag: bool
    note: str | None

    def __post_init__(self) -> None:
        if self.flag and self.note is None:
            raise ValueError("note: None is not allowed: a text where flag is true")


GOOD = {
    "kind": "a", "inner": {"count": 2, "low": 0.0, "high": 1.0}, "explore": None, "names": ["x", "y"],
    "several": {"1": {"resets": 0.5}}, "flag": False, "note": None,
}  # fmt: skip


def said(**changes: object) -> str:
    with pytest.raises(Refused) as refused:
        build(Outer, GOOD | changes)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_what_is_right_becomes_the_dataclasses():
    inner = Inner(2, 0.0, 1.0)
    assert build(Outer, GOOD) == Outer("a", inner, None, ("x", "y"), {"1": Resets(0.5)}, False, None)


@pytest.mark.parametrize(
    ("explore", "built"),
    [(None, None), ({"resets": 0.25}, Resets(0.25)), ({"bonus": 1, "decay": 2}, Bonus(1.0, 2.0))],
)
def test_a_union_is_decided_by_null_or_by_its_keys(explore, built):
    assert build(Outer, GOOD | {"explore": explore}).explore == built


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"explore": {"resets": 1.5}}, "explore.resets: 1.5 is not allowed: should be less than 1"),
        ({"explore": {"bonus": 0, "decay": 1}}, "explore.bonus: 0 is not allowed: should be greater than 0"),
        ({"explore": {"bonus": 1}}, "explore.decay: missing; every key is needed"),
        ({"explore": {"bonus": 1, "dekay": 1}}, "explore.dekay: 1 is not allowed: unknown key; did you mean decay? al"),
        ({"explore": {"else": 1}}, "explore.else: 1 is not allowed: unknown key; allowed: resets"),
        ({"explore": 3}, "explore: 3 is not allowed: a section with the keys resets"),
        ({"kind": "c"}, "kind: 'c' is not allowed: should be 'a' or 'b'"),
        ({"inner": GOOD["inner"] | {"count": 0}}, "inner.count: 0 is not allowed: should be greater than or equal to"),
        ({"inner": GOOD["inner"] | {"count": 1.0}}, "inner.count: 1.0 is not allowed: should be a valid integer"),
        ({"inner": GOOD["inner"] | {"count": True}}, "inner.count: True is not allowed: should be a valid integer"),
        ({"inner": GOOD["inner"] | {"low": 2}}, "inner.low: 2.0 is not allowed: at most high, 1.0"),
        ({"several": {"1": {"resets": 2}}}, "several.1.resets: 2 is not allowed: should be less than 1"),
        ({"names": "x"}, "names: 'x' is not allowed: should be a valid tuple"),
        ({"flag": 1}, "flag: 1 is not allowed: should be a valid boolean"),
        ({"flag": True}, "note: None is not allowed: a text where flag is true"),
        ({"nots": 1}, "nots: 1 is not allowed: unknown key; did you mean note? allowed: kind, inner, explore"),
        ({"kind": "c", "flag": 1}, "kind: 'c' is not allowed: should be 'a' or 'b' (and 1 more problem)"),
    ],
)
def test_a_refusal_names_the_whole_key_the_value_and_what_is_allowed(changes, message):
    assert said(**changes).startswith(message)


def test_the_keys_of_a_section():
    assert keys_of(Outer, GOOD, ("inner",)) == ["count", "low", "high"]
    assert keys_of(Outer, {"explore": {"bonus": 1}}, ("explore",)) == ["bonus", "decay"]
    assert keys_of(Outer, GOOD, ("several", "1")) == ["resets"]
    assert keys_of(Outer, GOOD, ("kind",)) == keys_of(Outer, GOOD, ("nowhere",)) == []


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_number_is_taken_as_it_is_or_refused_for_its_range(value):
    try:
        assert build(Resets, {"resets": value}) == Resets(value) and 0 <= value < 1
    except Refused as refused:
        assert not 0 <= value < 1
        assert str(refused).startswith("resets: ")
