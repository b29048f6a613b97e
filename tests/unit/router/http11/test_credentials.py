import pytest

from promptgroup_router.http11.credentials import api_keys, bearer


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ({}, []),
        ({b"authorization": b"Bearer sk-1"}, [b"sk-1"]),
        ({b"authorization": b"bearer   sk-1"}, [b"sk-1"]),
        ({b"authorization": b"Basic dXNlcjpwYXNz"}, []),
        ({b"authorization": b"Bearer"}, []),
        ({b"authorization": b"Bearer "}, []),
        ({b"x-api-key": b"sk-1"}, [b"sk-1"]),
        ({b"api-key": b"sk-1"}, [b"sk-1"]),
        ({b"x-api-key": b"sk-2", b"authorization": b"Bearer sk-1"}, [b"sk-1", b"sk-2"]),
        ({b"x-api-key": b"sk-1", b"authorization": b"Bearer sk-1"}, [b"sk-1"]),
    ],
)
def test_keys_stand_where_the_clients_of_both_apis_put_them(fields, keys):
    assert api_keys(fields) == keys


def test_a_bearer_token():
    assert bearer({b"authorization": b"BEARER a.b.c"}) == b"a.b.c"
