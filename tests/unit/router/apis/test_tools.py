import orjson
import pytest

from promptgroup_contract.fingerprint import canonical_tools
from promptgroup_router.apis.tools import LARGEST_SHARE, MOST_BYTES, MOST_VALUES, ToolForms
from promptgroup_router.base.errors import ApiError


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
    most = 1000 * LARGEST_SHARE
    remembered = ToolForms(Counting(), most)
    for number in range(1000):
        remembered.get(*named(f"{number:04}"))
    forms = sum(len(spelled) + len(form.canonical) + len(form.ordered) for spelled, form in remembered._by_text.items())
    assert most // 8 < forms <= most


def test_a_list_that_would_empty_the_memory_is_not_remembered():
    forms = Counting()
    remembered = ToolForms(forms, 1000 * LARGEST_SHARE)
    remembered.get(*named("find"))
    for _ in range(2):
        remembered.get(*named("long", 1000))
    assert (forms.made, len(remembered)) == (3, 1)


@pytest.mark.parametrize("tools", [[{"name": "x" * MOST_BYTES}], [1e308] * (MOST_VALUES + 2)], ids=["bytes", "values"])
def test_a_list_that_no_prompt_has_is_refused_before_it_is_sorted(tools):
    forms = Counting()
    with pytest.raises(ApiError) as caught:
        ToolForms(forms).get(orjson.dumps(tools), tools)
    assert (caught.value.status, caught.value.param, forms.made) == (400, "tools", 0)


def test_numbers_do_not_make_a_list_longer():
    tools = [1e308] * 1000
    assert len(ToolForms(Counting()).get(orjson.dumps(tools), tools).canonical) < 10 * 1000
