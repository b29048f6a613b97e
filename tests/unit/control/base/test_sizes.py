"""Sizes, as a spec gives them."""

import pytest

from promptgroup_operator.base import sizes


@pytest.mark.parametrize(("text", "size"), [("1Ki", 1024), ("64Mi", 64 * 2**20), ("9999Gi", 9999 * 2**30)])
def test_a_size_is_a_number_of_bytes(text, size):
    assert sizes.parse(text) == size


@pytest.mark.parametrize("text", ["", "0Mi", "64", "64M", "64Mi ", "64Mi\n", "10000Ki", "-1Mi", "1.5Gi", "٣Mi"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="as in 64Mi"):
        sizes.parse(text)
