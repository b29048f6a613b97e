import pytest

from promptgroup_cli.base.errors import InputError
from promptgroup_cli.reach.discovered import SamplePrompt
from promptgroup_cli.reach.proposals import guest_name, host_of, worth_a_guest


def group(name, model="llama", **spec):
    return {"metadata": {"name": name}, "spec": {"model": model, **spec}}


def test_the_group_without_a_prompt_that_serves_the_model_is_the_host():
    groups = [group("own", prompt={}), group("guest", engineFrom={}), group("other", "qwen"), group("pool")]
    assert host_of(groups, "llama") == "pool"
    assert host_of([group("pool", "qwen", modelAliases=["llama"])], "llama") == "pool"
    assert host_of([], "llama") == host_of([group("a"), group("b")], "llama") == ""


def test_each_prompt_with_a_text_is_proposed_once():
    listed = [{"hash": name * 16} for name in "abcd"]
    texts = {"a": "You sell cars. ", "b": "You sell cars. Be brief.", "c": "You translate.", "d": ""}
    sample = {name * 16: SamplePrompt(text, "") for name, text in texts.items()}
    assert [each["hash"][0] for each in worth_a_guest(listed, sample)] == ["a", "c"]
    with pytest.raises(InputError, match="--sample FILE"):
        worth_a_guest(listed, {})


def test_names_of_guests_fit_and_tell_them_apart():
    names = [guest_name({"hash": f"{number:016x}"}, "n" * 50) for number in (1 << 40, 2 << 40)]
    assert len(set(names)) == 2
    assert all(len(name) <= 50 for name in names)
