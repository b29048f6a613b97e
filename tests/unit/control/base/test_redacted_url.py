import pytest

from promptgroup_operator.base.redacted_url import redacted_url


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("http://prometheus:9090/", "http://prometheus:9090"),
        ("https://user:secret@prometheus/path?token=secret", "https://prometheus/path"),
    ],
)
def test_an_address_as_people_may_see_it(url, seen):
    assert redacted_url(url) == seen
