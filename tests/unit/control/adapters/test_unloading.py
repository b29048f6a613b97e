from datetime import timedelta

from promptgroup_operator.adapters.identity import Adapter
from promptgroup_operator.adapters.unloading import MOST_UNLOADED, UNWANTED, LoadedModel, to_unload, unwanted_since
from support.builders import NOW

OLD, NEW = Adapter("tone", "example/v1"), Adapter("tone", "example/v2")
LISTED = [
    LoadedModel("llama", "llama", ""),
    LoadedModel(OLD.served, OLD.path, "llama"),
    LoadedModel(NEW.served, NEW.path, "llama"),
    LoadedModel("by-hand", "example/by-hand", "llama"),
]


def test_an_adapter_without_a_revision_is_unloaded_after_some_time():
    first = unwanted_since(LISTED, {NEW.served}, {}, NOW)
    assert first == {OLD.served: NOW}
    assert to_unload(first, NOW) == []
    later = NOW + UNWANTED
    assert to_unload(unwanted_since(LISTED, {NEW.served}, first, later), later) == [OLD.served]


def test_an_adapter_that_is_wanted_again_begins_anew():
    first = unwanted_since(LISTED, {NEW.served}, {}, NOW)
    between = unwanted_since(LISTED, {NEW.served, OLD.served}, first, NOW + timedelta(seconds=10))
    later = NOW + UNWANTED
    assert to_unload(unwanted_since(LISTED, {NEW.served}, between, later), later) == []


def test_what_the_operator_did_not_load_is_left_alone():
    later = NOW + UNWANTED
    found = to_unload(unwanted_since(LISTED, (), {"by-hand": NOW, "llama": NOW}, later), later)
    assert not {"by-hand", "llama"} & set(found)


def test_an_engine_that_lists_many_adapters_has_a_few_unloaded_after_each_reading():
    since = {f"tone-{number:08x}": NOW for number in range(20)}
    later, rounds = NOW + UNWANTED, []
    while due := to_unload(since, later):
        rounds.append(len(due))
        since = {name: at for name, at in since.items() if name not in due}
    assert rounds == [MOST_UNLOADED, MOST_UNLOADED, 20 - 2 * MOST_UNLOADED]
