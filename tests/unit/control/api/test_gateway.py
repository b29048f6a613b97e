import pytest
from pydantic import ValidationError

from support.builders import spec


def test_a_gateway_fails_closed_unless_it_is_told_to_fail_open():
    assert spec(gateway={}).gateway.failure_mode == "FailClose"
    assert spec(gateway={"failureMode": "FailOpen"}).gateway.inference_pool is None
    assert spec().gateway is None


@pytest.mark.parametrize("name", ["", "Upper", "-a", "a" * 64])
def test_the_name_of_a_pool_is_one_that_a_label_can_have(name):
    with pytest.raises(ValidationError):
        spec(gateway={"inferencePool": name})
