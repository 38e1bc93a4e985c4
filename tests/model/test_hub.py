"""A checkpoint's name that is nobody's is told at once; a model of the hub comes from its cache, else from the hub."""

import subprocess
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from agentprm_core.errors import CheckpointError, DataError
from agentprm_core.policy.hub import require_named
from agentprm_core.policy.models import MANIFEST, checkpoint_digest, load_checkpoint, save_checkpoint
from tests.model import toy
from tests.running import running

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """Has ``ann/model`` and nothing else, and says so at its API."""

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_response(200 if self.path.startswith("/api/models/ann/model") else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty one, of a library that may go online."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "cache"


@contextmanager
def hub_at(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked = []
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    with running(server):
        yield server


@pytest.mark.parametrize("source", ["nosuch", "no/such", "./nosuch", "a b", "data/checkpoints/prm/9"])
def test_a_prm_is_a_folder_and_the_hub_is_not_asked(source, cache, monkeypatch):
    said = rf"^{source}: no such checkpoint folder; a PRM is a folder, or an agent .*\(shipped:alfworld, .*\)$"
    with hub_at(monkeypatch) as hub, pytest.raises(CheckpointError, match=said):
        require_named(source, "prm")
    assert not hub.asked


@pytest.mark.parametrize("source", ["nosuch", "./nosuch", "/no/such", "a b", "data/checkpoints/policy/9"])
def test_a_name_that_no_model_of_the_hub_has_is_not_asked_for(source, cache, monkeypatch):
    said = rf"^{source}: no such checkpoint folder.*shipped:alfworld, .*or owner/name of a model of the hub"
    with hub_at(monkeypatch) as hub, pytest.raises(CheckpointError, match=said) as error:
        load_checkpoint(source)
    assert not hub.asked and "\n" not in str(error.value)


def test_the_hub_is_asked_once_for_an_owners_model(cache, monkeypatch):
    with hub_at(monkeypatch) as hub:
        require_named("ann/model", "policy")
        require_named("ann/model", "policy", "v2")
        with pytest.raises(CheckpointError, match=r"has none that you may read \(HTTP 404.* hf auth login\)"):
            load_checkpoint("ann/modle")
    paths = ["/api/models/ann/model", "/api/models/ann/model/revision/v2", "/api/models/ann/modle"]
    assert hub.asked == paths


def test_a_hub_that_does_not_answer_is_asked_once(cache, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(CheckpointError, match=r"http://127.0.0.1:9 does not answer \(ConnectError\); a policy is"):
        load_checkpoint("ann/model")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match=r"HF_HUB_OFFLINE forbids to ask http://127"):
        load_checkpoint("ann/model")


def test_a_model_in_the_cache_needs_no_hub(cache, monkeypatch):
    files = cache / "models--ann--model" / "snapshots" / COMMIT
    policy = toy.policy()
    save_checkpoint(policy.model, policy.tokenizer, files)
    (files / MANIFEST).unlink()  # a published model
    (cache / "models--ann--model" / "refs").mkdir()
    (cache / "models--ann--model" / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    require_named("ann/model", "policy")
    assert load_checkpoint(Path("ann/model")).digest == checkpoint_digest(files)


def test_shipped_agents_and_folders_are_named(tmp_path):
    require_named("shipped:households", "prm")
    require_named(tmp_path, "prm")
    with pytest.raises(DataError, match="no such agent is shipped"):
        require_named("shipped:nosuch", "policy")


@pytest.mark.parametrize(
    "words",
    [
        ("play", "--print", "--prm", "nosuch"),
        ("evaluate", "--policy", "nosuch", "--games", "x", "--split", "seen"),
        ("evaluate", "--policy", "shipped:webshop", "--prm", "nosuch", "--method", "best_of_4", "--games", "x"),
        ("show", "--game", "x", "--policy", "mine=nosuch"),
    ],
)
def test_commands_tell_a_slip_before_they_load_anything(words):
    """In a process of its own, which has not loaded torch before."""
    run = f"import sys; sys.argv = ['agentprm', *{words}]; from tasks.commands.cli import main\ntry: main()\n"
    code = f"{run}except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"{words[0]}: nosuch: no such checkpoint folder") and said.endswith(" False\n")
