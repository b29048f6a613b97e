import pytest
from pydantic import ValidationError

from promptgroup_operator.api.adapter import AdapterSource, AdapterSpec, EngineAdaptersSpec


@pytest.mark.parametrize("folder", ["tone", "support/v1", "a_b/c.d-e/_f"])
def test_folders(folder):
    assert AdapterSource(folder=folder).folder == folder


@pytest.mark.parametrize("folder", ["", "/tone", "tone/", "a//b", "a/./b", "../a", "a/../b", ".hidden", "a b", "a\n"])
def test_a_folder_has_one_path_which_stays_on_the_volume(folder):
    with pytest.raises(ValidationError):
        AdapterSource(folder=folder)


@pytest.mark.parametrize("repository", ["tone", "a/b/c", "/a", "https://example.org/a", "a/"])
def test_a_repository_has_an_owner_and_a_name(repository):
    with pytest.raises(ValidationError):
        AdapterSource(hugging_face=repository)


@pytest.mark.parametrize("name", ["", "-a", "a-", "a/b", "a=b", "a b", "a" * 201])
def test_names_that_arguments_and_logs_cannot_have(name):
    with pytest.raises(ValidationError):
        AdapterSpec(name=name, source=AdapterSource(folder="a"))


def test_the_room_of_an_engine():
    room = EngineAdaptersSpec()
    assert (room.claim_name, room.max_active, room.max_in_memory, room.max_rank) == (None, 4, 32, 16)
    with pytest.raises(ValidationError):
        EngineAdaptersSpec.model_validate({"maxRank": 20})
