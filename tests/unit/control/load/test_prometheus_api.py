"""The client's limits, against servers that are none; `test_prometheus` has what is made of its answers."""

import gzip
import ssl
from contextlib import closing

import pytest
import requests

from promptgroup_operator.base.settings import Settings
from promptgroup_operator.load.prometheus_api import (
    MAX_TOKEN,
    BearerToken,
    PrometheusApi,
    PrometheusError,
)
from support.builders import NOW
from support.fakekube import certificate
from support.hostile import HOSTILE, hostile_server


def asked(address, timeout, ca_file=None):
    """A client of the server at an address, by TLS where there is a CA; it is closed at the end."""
    url = f"{'https' if ca_file else 'http'}://{address}"
    return closing(PrometheusApi(Settings(prometheus_url=url, prometheus_timeout=timeout, prometheus_ca_file=ca_file)))


@pytest.mark.parametrize("answer", HOSTILE)
def test_every_exchange_ends_whatever_answers_in_its_place(answer):
    with hostile_server(HOSTILE[answer]) as address, asked(address, 0.2) as source, pytest.raises(PrometheusError):
        source.query("up", NOW)


@pytest.mark.heavy
@pytest.mark.parametrize("answer", ["a head that drips", "a body that drips", "a body without end"])
def test_over_tls_too(answer, tmp_path):
    signed, key = certificate()
    (tmp_path / "ca.crt").write_bytes(signed)
    (tmp_path / "tls.pem").write_bytes(key + signed)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls.pem")
    with (
        hostile_server(HOSTILE[answer], context) as address,
        asked(address, 1.0, tmp_path / "ca.crt") as source,
        pytest.raises(PrometheusError, match=r"^(?!TLS failed)"),
    ):
        source.query("up", NOW)


def test_an_answer_that_is_compressed_is_not_unpacked():
    """A few bytes of it could be any length."""
    packed = gzip.compress(b'{"status": "success", "data": {"resultType": "vector", "result": []}}')
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n".encode()
    answering = hostile_server(lambda connection, _: connection.sendall(head + packed))
    with answering as address, asked(address, 5.0) as source, pytest.raises(PrometheusError):
        source.query("up", NOW)


def test_a_token_is_read_up_to_a_limit(tmp_path):
    path = tmp_path / "token"
    path.write_text("t" * MAX_TOKEN)
    request = BearerToken(path)(requests.Request("GET", "http://p").prepare())
    assert request.headers["Authorization"] == "Bearer " + "t" * MAX_TOKEN
    path.write_text("t" * (MAX_TOKEN + 1))
    with pytest.raises(OSError, match="not a token"):
        BearerToken(path)(request)
