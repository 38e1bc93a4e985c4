"""Types of command-line options."""

from argparse import ArgumentTypeError

import pytest
import torch

from agentprm_core.arguments import (
    above_zero,
    any_seed,
    at_least,
    count,
    device,
    listed,
    not_negative,
    port,
    repeated,
    share,
    share_or_all,
)


def test_what_is_within_the_range_is_taken():
    assert (at_least(0)("0"), at_least(2)("2")) == (0, 2)
    assert (count("3"), above_zero("0.5"), not_negative("0"), device("cpu")) == (3, 0.5, 0.0, "cpu")
    assert [share_or_all(value) for value in ("0", "0.5", "1")] == [0.0, 0.5, 1.0]
    assert (share("0.5"), listed()("seen,unseen"), listed(count)("3")) == (0.5, ("seen", "unseen"), (3,))


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        *((count, value, "is not a whole number that is at least 1") for value in ("0", "-3", "1.5", "many", "")),
        (at_least(2), "1", "is not a whole number that is at least 2"),
        *((above_zero, value, "is not a number above 0") for value in ("0", "-1", "nan", "inf", "hot")),
        *((not_negative, value, "is not a number that is at least 0") for value in ("-0.1", "nan", "inf", "much")),
        *((share, value, "is not a number above 0 and below 1") for value in ("0", "1", "nan", "half")),
        *((share_or_all, value, "is not a number from 0 to 1") for value in ("-0.1", "1.1", "nan", "all")),
        *(
            (listed(), value, "has an empty name: one comma between two names, and none at the ends")
            for value in ("unseen,", ",unseen", "seen,,unseen", "seen, ,unseen", "")
        ),
        (listed(), "prm,random,prm", "has 'prm' twice: name each once"),
        (listed(not_negative), "0,0.0", "has '0.0' twice: name each once"),
        *((device, value, "is not cpu, cuda or cuda:N") for value in ("foo", "cpu:1", "cuda:", "cuda:x")),
    ],
)
def test_what_is_not_is_said(kind, value, said):
    with pytest.raises(ArgumentTypeError, match=f"^'{value}' {said}$"):
        kind(value)


def test_each_of_a_list_is_read_as_one_is():
    with pytest.raises(ArgumentTypeError, match=r"^'-1' is not a number that is at least 0$"):
        listed(not_negative)("0.1,-1")


def test_the_place_of_what_is_there_again():
    assert (repeated("abcb"), repeated("abc"), repeated([])) == (3, None, None)


def test_a_gpu_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert device("cuda") == "cuda" and device("cuda:0") == "cuda:0"
    with pytest.raises(ArgumentTypeError, match="'cuda:1': PyTorch sees 1 GPUs here"):
        device("cuda:1")


@pytest.mark.parametrize(
    ("kind", "most", "values"),
    [(port, 65535, ("0", "65536", "-1", "http", "")), (any_seed, 4294967295, ("-1", "4294967296", "new"))],
)
def test_a_number_in_a_range(kind, most, values):
    assert kind(f"{most}") == most
    for value in values:
        with pytest.raises(ArgumentTypeError, match=f"is not a whole number from [01] to {most}"):
            kind(value)
