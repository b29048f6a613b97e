import argparse

import pytest

from promptgroup_cli.base.object_names import MOST_OF_GROUP, group_name
from promptgroup_operator.api.prompt_group import MAX_NAME


@pytest.mark.parametrize("text", ["support", "a", "support-2.eu", "a" * 50])
def test_a_name_that_the_api_server_takes(text):
    assert group_name(text) == text


@pytest.mark.parametrize("text", ["", "Support", "a_b", "-a", "a-", "a..b", "a" * 51, "a\n"])
def test_a_name_that_it_refuses(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a name of a PromptGroup"):
        group_name(text)


def test_the_limit_is_that_of_the_models():
    assert MOST_OF_GROUP == MAX_NAME
