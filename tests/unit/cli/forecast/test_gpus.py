import pytest

from promptgroup_cli.forecast.gpus import GPUS, gpu


@pytest.mark.parametrize("name", ["H100-80GB", "h100-80gb", "H100"])
def test_a_gpu_is_found_by_its_name(name):
    assert gpu(name) is GPUS["H100-80GB"]


def test_two_sizes_must_be_told_apart():
    with pytest.raises(KeyError, match="A100-40GB, A100-80GB"):
        gpu("A100")


def test_an_unknown_one_is_answered_with_those_that_are():
    with pytest.raises(KeyError, match="H200-141GB"):
        gpu("TPU")


@pytest.mark.parametrize("name", GPUS)
def test_names_carry_the_memory(name):
    assert GPUS[name].memory == float(name.split("-")[1].removesuffix("GB")) * 1e9
