import pytest

from promptgroup_operator.adapters import identity
from promptgroup_operator.adapters.identity import MOUNT, Adapter
from promptgroup_operator.api.loaded_weights import AdapterSource, AdapterSpec

FOLDER = AdapterSpec(name="tone", source=AdapterSource(folder="support/v1"))
REPOSITORY = AdapterSpec(name="tone", source=AdapterSource(hugging_face="example/tone"))


def test_a_folder_is_on_the_volume_and_a_repository_is_named():
    assert identity.of_spec(FOLDER).path == f"{MOUNT}/support/v1"
    assert identity.of_spec(REPOSITORY).path == "example/tone"


@pytest.mark.parametrize("spec", [FOLDER, REPOSITORY])
def test_a_spec_comes_back_from_what_is_stored(spec):
    stored = identity.encode(identity.of_spec(spec))
    assert identity.to_spec(identity.decode(stored)) == spec
    assert identity.decode("") is None


def test_engines_serve_each_revision_under_a_name_of_its_own():
    one, two = (Adapter("tone", f"{MOUNT}/v{number}").served for number in (1, 2))
    assert one != two
    assert one.startswith("tone-")
    assert len(one) == len("tone-") + 8


def test_only_names_that_are_made_of_their_path_are_ours():
    adapter = Adapter("tone", f"{MOUNT}/v1")
    assert identity.is_ours(adapter.served, adapter.path)
    assert not identity.is_ours(adapter.served, f"{MOUNT}/v2")
    assert not identity.is_ours("tone", adapter.path)
    assert not identity.is_ours("tone-01234567", adapter.path)


@pytest.mark.parametrize("name", ["to\nne", "tone\x1b[2J", "-tone", "t" * 201])
def test_a_name_that_no_spec_may_have_is_not_ours_and_is_never_logged(name):
    adapter = Adapter(name, f"{MOUNT}/v1")
    assert not identity.is_ours(adapter.served, adapter.path)
