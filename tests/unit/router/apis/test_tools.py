import orjson

from promptgroup_router.apis.tools import LARGEST_SHARE, ToolForms
from promptgroup_router.contract.fingerprint import canonical_tools


class Counting:
    def __init__(self) -> None:
        self.made = 0

    def __call__(self, tools: list) -> tuple[str, str]:
        self.made += 1
        return canonical_tools(tools), canonical_tools(tools)


def named(name: str, size: int = 0) -> tuple[bytes, list]:
    tools = [{"name": name + "x" * size}]
    return orjson.dumps(tools), tools


def test_a_list_is_sorted_once():
    forms = Counting()
    remembered = ToolForms(forms)
    first = remembered.get(*named("find"))
    assert remembered.get(*named("find")) is first
    assert (forms.made, first.in_order) == (1, True)


def test_a_list_in_another_order_is_told():
    tools = [{"b": 1, "a": 2}]
    form = ToolForms(Counting()).get(orjson.dumps(tools), tools)
    assert (form.ordered, form.in_order) == ('[{"a":2,"b":1}]', False)


def test_lists_are_remembered_within_a_bound_of_bytes():
    most = 64 * LARGEST_SHARE
    remembered = ToolForms(Counting(), most)
    for number in range(1000):
        remembered.get(*named(f"{number:04}"))
    assert len(remembered) == most // len(named("0000")[0])


def test_a_list_that_would_empty_the_memory_is_not_remembered():
    forms = Counting()
    remembered = ToolForms(forms, 1000)
    remembered.get(*named("find"))
    for _ in range(2):
        remembered.get(*named("long", 1000 // LARGEST_SHARE))
    assert (forms.made, len(remembered)) == (3, 1)
