"""LoRA adapters that are loaded into servers while they run: once, under a name of the weights, the older ones out."""

from dataclasses import replace

import pytest
from peft import LoraConfig, get_peft_model

from agentprm_core.errors import DataError, ServerError
from agentprm_core.policy.adapters import load_adapter
from agentprm_core.policy.models import load_checkpoint, save_checkpoint
from agentprm_core.policy.server import Servers, served_name
from agentprm_core.search.playing import PlaySettings
from tests.model import toy
from tests.model.test_served_play import QUICK, at, rolled, toys
from tests.model.test_server import GAMES, Loras, serving


def loaded(*servers, name="policy-new", folder="/nfs/policy/2"):
    return load_adapter(at(*servers).urls, name, folder, patience=QUICK, api_key="secret")


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A policy with a LoRA adapter, from its folder."""
    folder, policy = tmp_path_factory.mktemp("adapted"), toy.policy()
    save_checkpoint(policy.model, policy.tokenizer, folder / "base")
    base = load_checkpoint(folder / "base")
    assert base.adapter is None
    config = LoraConfig(r=2, target_modules=["q_proj"], base_model_name_or_path=str(folder / "base"))
    save_checkpoint(get_peft_model(base.model, config), base.tokenizer, folder / "tuned")
    return load_checkpoint(folder / "tuned")


@pytest.mark.parametrize(
    "kind, path, extra", [("vllm", "/v1/load_lora_adapter", False), ("sglang", "/load_lora_adapter", True)]
)
def test_rollouts_load_the_policys_adapter_once(kind, path, extra, adapted, toy_engine, tmp_path):
    name, loras = served_name(adapted.digest), Loras(kind, ["base"])
    with serving(loras=loras) as server:
        rolled(toys(at(server)), adapted, GAMES, tmp_path)
        asked = [body for _, body, _ in server.asked]
    assert loras.names == ["base", name]
    assert (path, {"lora_name": name, "lora_path": str(adapted.adapter)}, None) in loras.told
    assert {(body["model"], body.get("lora_path")) for body in asked} == {(name, name if extra else None)}


def test_weights_without_an_adapter_are_not_loaded(toy_engine, tmp_path):
    loras = Loras("vllm")
    with serving(loras=loras) as server:
        rolled(toys(at(server)), toy.policy(), GAMES[:1], tmp_path)
        assert server.asked and not loras.told


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_the_one_before_stays_and_older_ones_go(kind):
    loras = Loras(kind, ["base", "policy-a", "policy-b", "somebody's"])
    with serving(loras=loras) as server:
        loaded(server)
        assert loras.names == ["base", "policy-b", "somebody's", "policy-new"]
        assert {key for _, _, key in loras.told} == {"Bearer secret"}
        loras.told.clear()
        loaded(server)
        assert not [path for path, *_ in loras.told if "unload" in path], "it was there already"
        assert loras.names == ["base", "policy-b", "somebody's", "policy-new"]


def test_an_adapter_that_the_server_was_started_with_needs_no_loading():
    with serving(loras=Loras("", ["policy-new"])) as server:
        assert loaded(server).urls == at(server).urls


def test_a_server_that_can_load_none_says_what_to_do():
    with serving() as server, pytest.raises(ServerError) as error:
        loaded(server)
    said = f"127.0.0.1:{server.server_port}/v1 has no policy-new and cannot load it while it runs: start vLLM with "
    assert said in str(error.value) and "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True" in str(error.value)


@pytest.mark.parametrize(
    "kind, answer",
    [
        ("vllm", (404, {"error": {"message": "Loading lora failed: No adapter found for /nfs/policy/2"}})),
        ("vllm", (400, "LoRA rank 64 is greater than max_lora_rank 16")),
        ("sglang", (400, {"success": False, "error_message": "LoRA is not enabled.\nPlease set `--enable-lora`"})),
        ("sglang", (401, "unauthorized")),
    ],
)
def test_a_refused_adapter_is_one_line_with_the_servers_reason(kind, answer):
    loras = Loras(kind)
    loras.refuses = answer
    with serving(loras=loras) as server, pytest.raises(ServerError, match="refuses the adapter in /nfs/policy/2") as e:
        loaded(server)
    assert f"HTTP {answer[0]}: " in str(e.value) and "--max-lora-rank" in str(e.value) and "\n" not in str(e.value)
    assert "policy-new" not in loras.names


def test_a_server_that_is_gone_is_left_out(capfd):
    with serving(loras=Loras("vllm")) as server:
        gone = Servers(("http://127.0.0.1:9/v1", *at(server).urls)).urls
        assert load_adapter(gone, "policy-new", "/x", patience=QUICK).urls == at(server).urls
    assert "http://127.0.0.1:9/v1 is not asked any more, others are: " in capfd.readouterr().err
    with pytest.raises(
        ServerError, match=r"^no server answers: start it, then run the same command; the last: .* in 3 tries; "
    ):
        load_adapter(gone[:1], "policy-new", "/x", patience=QUICK)


def test_an_overloaded_server_is_asked_again():
    loras = Loras("vllm")
    with serving(loras=loras) as server:
        busy = iter([(503, "busy"), (429, "busy")])
        answer = loras.answer
        loras.answer = lambda *asked: next(busy, None) or answer(*asked)
        assert loaded(server).urls == at(server).urls
    assert loras.names == ["policy-new"]


def test_an_evaluation_ends_in_one_line_where_the_adapter_cannot_be_loaded(adapted, toy_engine):
    settings = PlaySettings("toy", 4, 512, 8, constrained=False, slots=4, cache_mb=2048)
    with serving() as server:
        there = replace(settings, servers=at(server))
        with pytest.raises(DataError, match="cannot load it while it runs"), there.playing(adapted, 0.0):
            pass
