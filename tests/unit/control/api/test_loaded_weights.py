import pytest
from pydantic import ValidationError

from promptgroup_operator.api.loaded_weights import (
    AdapterSource,
    AdapterSpec,
    EngineAdaptersSpec,
    PullPolicy,
    WeightsSpec,
)


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


def test_an_image_has_its_pull_policy():
    weights = WeightsSpec.model_validate({"image": "registry.example.com/models/llama:1", "pullPolicy": "Always"})
    assert (weights.pull_policy, weights.claim_name, weights.path) == (PullPolicy.ALWAYS, None, None)


@pytest.mark.parametrize("path", ["a", "a/b-1.0/C_d"])
def test_a_path_is_a_folder_within_the_volume(path):
    assert WeightsSpec.model_validate({"claimName": "models", "path": path}).path == path


@pytest.mark.parametrize("path", ["../x", "/x", "a/../b", "a//b", "a/", ""])
def test_a_path_stays_within_the_volume(path):
    with pytest.raises(ValidationError):
        WeightsSpec.model_validate({"claimName": "models", "path": path})
