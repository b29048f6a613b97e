import socket

import pytest
import urllib3

from promptgroup_cli.base.unreachable import reason


def failure(url: str) -> Exception:
    with urllib3.PoolManager(retries=False, timeout=0.2) as pool, pytest.raises(urllib3.exceptions.HTTPError) as raised:
        pool.request("GET", url)
    return raised.value


def test_a_port_where_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert reason(failure(f"http://127.0.0.1:{port}")) == "nothing there takes the connection"


def test_a_server_that_says_nothing():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert reason(failure(f"http://127.0.0.1:{server.getsockname()[1]}")) == "it takes too long"


NOWHERE = urllib3.exceptions.NameResolutionError("router", None, socket.gaierror())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            urllib3.exceptions.NameResolutionError("router", None, socket.gaierror()),
            "the name of its host leads nowhere",
        ),
        (urllib3.exceptions.ProtocolError("aborted"), "it closes the connection, or speaks no HTTP"),
        (OSError("of http://user:secret@router"), "OSError"),
    ],
)
def test_no_words_of_the_error_are_told(error, words):
    assert reason(error) == words
