import socket

import pytest
import requests
import urllib3

from promptgroup_operator.base.unreachable import reason

REFUSED = "the connection was refused, or nothing listens there"
LATE = "it did not answer in time"


def nobody():
    """The address of a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def failure(url: str) -> Exception:
    with urllib3.PoolManager(retries=False, timeout=0.2) as pool, pytest.raises(urllib3.exceptions.HTTPError) as raised:
        pool.request("GET", url)
    return raised.value


def test_a_port_where_nobody_listens():
    assert reason(failure(nobody())) == REFUSED


def test_an_error_of_requests_holds_the_reason():
    with pytest.raises(requests.RequestException) as raised:
        requests.get(nobody(), timeout=1)
    assert reason(raised.value) == REFUSED


def test_a_server_that_says_nothing():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert reason(failure(url)) == LATE
        with pytest.raises(requests.RequestException) as raised:
            requests.get(url, timeout=0.1)
    assert reason(raised.value) == LATE


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            urllib3.exceptions.NameResolutionError("router", None, socket.gaierror()),
            "its host name cannot be resolved",
        ),
        (urllib3.exceptions.ProtocolError("aborted"), "it closed the connection, or does not speak HTTP"),
        (OSError("of http://user:secret@router"), "OSError"),
    ],
)
def test_no_words_of_the_error_are_told(error, words):
    assert reason(error) == words


def test_errors_in_a_circle_end():
    first, second = OSError(), OSError()
    first.args, second.args = (second,), (first,)
    assert reason(first) == "OSError"
