"""The unloading of adapters beside the passes, with engines that answer at once."""

import queue
from dataclasses import replace
from datetime import timedelta

import pytest

from promptgroup_operator.adapters.identity import Adapter
from promptgroup_operator.adapters.unloading import UNWANTED
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.passes import adapter_unloader
from promptgroup_operator.passes.adapter_unloader import EVERY, AdapterUnloader
from support import builders
from support.builders import NOW

OLD, NEW = Adapter("tone", "example/v1"), Adapter("tone", "example/v2")
CARDS = [{"id": each.served, "root": each.path, "parent": "llama"} for each in (OLD, NEW)]


class Engines:
    """Engines with two adapters; what they get comes into a queue."""

    def __init__(self):
        self.lines, self.fails, self.keeps = queue.Queue(), False, set()

    def of(self, group, container):
        if self.fails:
            raise EngineError("the engine's container is gone")
        return self

    def ask(self, address, path, limit):
        self.lines.put("read")
        return {"data": CARDS}

    def send(self, address, path, body, seconds):
        self.lines.put((path, body["lora_name"]))
        if body["lora_name"] in self.keeps:
            raise EngineError("status 500", status=500)

    def next(self):
        return self.lines.get(timeout=10)


@pytest.fixture
def engines(monkeypatch):
    found = Engines()
    found.clock = NOW

    class Clock:
        @staticmethod
        def now(_zone):
            return found.clock

    monkeypatch.setattr(adapter_unloader, "datetime", Clock)
    return found


@pytest.fixture
def unloader(engines):
    found = AdapterUnloader(engines)
    yield found
    found.close()


def world(**engine):
    made = builders.world([builders.revision(pods=[builders.pod()])], of=builders.group(engine=engine))
    return replace(made, adapters=frozenset({NEW.served}))


def test_what_no_revision_has_is_unloaded_once_its_time_has_come(engines, unloader):
    unloader.check(world(adapters={}), NOW)
    assert engines.next() == "read"
    unloader.check(world(adapters={}), NOW + EVERY / 2)
    engines.clock = NOW + UNWANTED
    unloader.check(world(adapters={}), engines.clock)
    assert [engines.next(), engines.next()] == ["read", ("/v1/unload_lora_adapter", OLD.served)]
    assert engines.lines.empty()


def test_routes_name_an_adapter_of_sglang_behind_its_model(engines, unloader):
    made = replace(world(adapters={}, type="SGLang"), adapters=frozenset({f"llama:{NEW.served}"}))
    unloader.check(made, NOW)
    assert engines.next() == "read"
    engines.clock = NOW + UNWANTED
    unloader.check(made, engines.clock)
    assert [engines.next(), engines.next()] == ["read", ("/unload_lora_adapter", OLD.served)]
    assert engines.lines.empty()


def test_an_adapter_that_an_engine_does_not_unload_holds_up_no_other(engines, unloader):
    nothing = replace(world(adapters={}), adapters=frozenset())
    engines.keeps = {min(OLD.served, NEW.served)}
    unloader.check(nothing, NOW)
    assert engines.next() == "read"
    engines.clock = NOW + UNWANTED
    unloader.check(nothing, engines.clock)
    assert [engines.next() for _ in range(3)] == [
        "read",
        *(("/v1/unload_lora_adapter", name) for name in sorted((OLD.served, NEW.served))),
    ]


def test_engines_without_room_for_adapters_are_not_read(engines, unloader):
    unloader.check(world(), NOW)
    unloader.check(world(adapters={}), NOW)
    assert engines.next() == "read"
    assert engines.lines.empty()


def test_an_engine_that_is_gone_ends_nothing(engines, unloader):
    engines.fails = True
    unloader.check(world(adapters={}), NOW)
    engines.fails = False
    unloader.check(world(adapters={}), NOW + timedelta(minutes=1))
    assert engines.next() == "read"
