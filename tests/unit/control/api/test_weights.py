"""The fields of a volume with weights; rules of more than one field are in `support/brokenspecs.py`."""

import pytest
from pydantic import ValidationError

from promptgroup_operator.api.weights import PullPolicy, WeightsSpec


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
