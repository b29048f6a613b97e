import pytest

from promptgroup_operator.adapters.identity import Adapter
from promptgroup_operator.adapters.unloading import LoadedModel
from promptgroup_operator.base.errors import AdapterError, EngineError
from promptgroup_operator.engines.adapter_requests import ensure_loaded, loaded_models, unload
from promptgroup_operator.engines.dialects.sglang import SGLANG
from promptgroup_operator.engines.dialects.vllm import VLLM

ADAPTER = Adapter("tone", "example/tone")
BASE = {"id": "llama", "root": "llama", "parent": None}
CARD = {"id": ADAPTER.served, "root": ADAPTER.path, "parent": "llama"}


class Engine:
    """An engine with a list of models, which answers what is sent to it with a status."""

    def __init__(self, listed, status=200):
        self.listed, self.status, self.sent = listed, status, []

    def ask(self, address, path, limit):
        assert (address, path) == ("a:1", "/v1/models")
        return self.listed

    def send(self, address, path, body, seconds):
        self.sent.append((path, body))
        if self.status != 200:
            raise EngineError(f"{path}: status {self.status}", status=self.status)


def test_an_adapter_is_loaded_once():
    engine = Engine({"data": [BASE]})
    ensure_loaded(engine, "a:1", VLLM.adapters, ADAPTER)
    assert engine.sent == [("/v1/load_lora_adapter", {"lora_name": ADAPTER.served, "lora_path": ADAPTER.path})]
    has_it = Engine({"data": [BASE, CARD]})
    ensure_loaded(has_it, "a:1", VLLM.adapters, ADAPTER)
    assert has_it.sent == []


def test_a_name_that_is_taken_by_other_weights_is_refused():
    engine = Engine({"data": [BASE, CARD | {"root": "/elsewhere"}]})
    with pytest.raises(AdapterError, match="another adapter of the name"):
        ensure_loaded(engine, "a:1", VLLM.adapters, ADAPTER)
    assert engine.sent == []


@pytest.mark.parametrize("status", [400, 404])
def test_a_refusal_names_the_path_and_what_to_look_at(status):
    with pytest.raises(AdapterError, match=r"from example/tone .*status 4.*maxRank"):
        ensure_loaded(Engine({"data": []}, status), "a:1", VLLM.adapters, ADAPTER)


@pytest.mark.parametrize("status", [500, 503])
def test_a_fault_of_the_engine_is_no_refusal(status):
    with pytest.raises(EngineError) as raised:
        ensure_loaded(Engine({"data": []}, status), "a:1", VLLM.adapters, ADAPTER)
    assert not isinstance(raised.value, AdapterError)


def test_entries_in_another_form_are_left_out():
    odd = [None, 7, {"id": 7}, {"root": "x"}, {"id": "x", "root": 7, "parent": ["y"]}]
    assert loaded_models(Engine({"data": [*odd, CARD]}), "a:1") == [
        LoadedModel("x", "", ""),
        LoadedModel(ADAPTER.served, ADAPTER.path, "llama"),
    ]
    with pytest.raises(EngineError, match="no list of models"):
        loaded_models(Engine({"data": "x"}), "a:1")


def test_unloading_names_the_adapter():
    engine = Engine({})
    unload(engine, "a:1", VLLM.adapters, ADAPTER.served)
    assert engine.sent == [("/v1/unload_lora_adapter", {"lora_name": ADAPTER.served})]


def test_sglang_has_paths_of_its_own():
    engine = Engine({"data": [BASE]})
    ensure_loaded(engine, "a:1", SGLANG.adapters, ADAPTER)
    unload(engine, "a:1", SGLANG.adapters, ADAPTER.served)
    assert [path for path, _ in engine.sent] == ["/load_lora_adapter", "/unload_lora_adapter"]
