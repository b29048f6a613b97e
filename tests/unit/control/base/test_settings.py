from dataclasses import fields
from pathlib import Path

import pytest

from promptgroup_operator.base.settings import Settings, parse


def test_without_flags_everything_has_its_default(monkeypatch):
    for field in fields(Settings):
        monkeypatch.delenv(f"PROMPTGROUP_OPERATOR_{field.name.upper()}", raising=False)
    assert parse([]) == Settings()


FLAGS = {
    "namespaces": ("a,b", ("a", "b")),
    "router_namespaces": ("c,d", ("c", "d")),
    "host": ("127.0.0.1", "127.0.0.1"),
    "health_port": ("9", 9),
    "metrics_port": ("7", 7),
    "workers": ("3", 3),
    "warmups": ("4", 4),
    "observe": ("sized", "sized"),
    "refresh_seconds": ("1.5", 1.5),
    "lease": ("a/b", "a/b"),
    "identity": ("one", "one"),
    "resync": ("5", 5),
    "prometheus_url": ("https://prometheus:9090/x", "https://prometheus:9090/x"),
    "prometheus_ca_file": (__file__, Path(__file__)),
    "prometheus_token_file": (__file__, Path(__file__)),
    "prometheus_timeout": ("2.5", 2.5),
    "prometheus_selector": ('cluster="eu", job=~"a|b"', 'cluster="eu", job=~"a|b"'),
    "leaving_taints": ("example.com/spot,b", ("example.com/spot", "b")),
    "gpu_hour_price": ("2.5", 2.5),
    "service_account_dir": ("/x", Path("/x")),
    "log_level": ("DEBUG", "DEBUG"),
}


def test_every_setting_is_tried():
    assert set(FLAGS) == {field.name for field in fields(Settings)}


@pytest.mark.parametrize("name", FLAGS)
def test_a_setting_is_a_flag_and_an_environment_variable(name, monkeypatch):
    text, expected = FLAGS[name]
    assert getattr(parse([f"--{name.replace('_', '-')}={text}"]), name) == expected
    monkeypatch.setenv(f"PROMPTGROUP_OPERATOR_{name.upper()}", text)
    assert getattr(parse([]), name) == expected


@pytest.mark.parametrize("flag", ["workers", "warmups", "resync"])
@pytest.mark.parametrize("value", ["0", "-1"])
def test_a_number_out_of_range_is_refused_with_the_flag_and_the_value(flag, value):
    with pytest.raises(ValueError, match=rf"--{flag} is {value}, expected 1 or more"):
        parse([f"--{flag}={value}"])


@pytest.mark.parametrize("value", [-1, 65536, 8081])
def test_a_port_that_is_none_or_the_other_one_is_refused(value):
    with pytest.raises(
        ValueError, match=rf"--metrics-port is {value}, expected a port up to 65535 other than --health"
    ):
        parse([f"--metrics-port={value}"])
    assert parse(["--metrics-port=0"]).metrics_port == 0


@pytest.mark.parametrize("value", ["0.5", "86401", "nan"])
def test_a_time_between_looks_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=rf"--refresh-seconds is {value}.*, expected 1 to 86400"):
        parse([f"--refresh-seconds={value}"])


@pytest.mark.parametrize("value", ["-1", "nan", "inf"])
def test_a_price_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=rf"--gpu-hour-price is {value}.*, expected 0 or more"):
        parse([f"--gpu-hour-price={value}"])


@pytest.mark.parametrize("value", ["name", "/name", "namespace/", "a/b/c"])
def test_a_lease_without_namespace_and_name_is_refused(value):
    with pytest.raises(ValueError, match=rf"--lease is '{value}', expected NAMESPACE/NAME"):
        parse([f"--lease={value}"])


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://prometheus", "http://", "http://p/?a=b"])
def test_an_address_of_prometheus_that_is_none_is_refused_and_not_repeated(url):
    with pytest.raises(ValueError, match=r"--prometheus-url is no address") as refused:
        parse([f"--prometheus-url={url}"])
    assert "a=b" not in str(refused.value)


@pytest.mark.parametrize("matchers", ["eu", 'cluster="eu"} or vector(1)', "cluster=eu", 'cluster="eu",,'])
def test_a_selector_that_is_none_is_refused(matchers):
    with pytest.raises(ValueError, match=r"--prometheus-selector is '.*', expected name=\"value\""):
        parse([f"--prometheus-selector={matchers}"])


def test_a_file_that_is_not_there_and_a_wait_without_end_are_refused():
    with pytest.raises(ValueError, match=r"--prometheus-ca-file is /nowhere, which is no file"):
        parse(["--prometheus-ca-file=/nowhere"])
    with pytest.raises(ValueError, match=r"--prometheus-timeout is 0.0, expected 0.1 to 60"):
        parse(["--prometheus-timeout=0"])
