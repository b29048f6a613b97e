import pytest

from promptgroup_contract.names import is_object_name


@pytest.mark.parametrize("name", ["a", "0", "keys", "kube-root-ca.crt", "a.b-c.d0", "x" * 253])
def test_names_that_objects_have(name):
    assert is_object_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../../victim/secrets/db", "a/b", "a..b", "a.", "-a", "a-", "A", "a_b", "a\n", "a%2fb", "x" * 254],
)
def test_names_that_no_object_can_have(name):
    assert not is_object_name(name)
