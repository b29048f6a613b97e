import argparse

import pytest

from promptgroup_cli.flags import status


def parsed(*words):
    parser = argparse.ArgumentParser()
    status.add(parser)
    return parser.parse_args(words)


def test_one_namespace_or_all_of_them():
    with pytest.raises(SystemExit):
        parsed("-A", "-n", "chat")


def test_all_groups_of_the_contexts_namespace_unless_it_is_said():
    found = parsed()
    assert (found.name, found.namespace, found.all_namespaces, found.output) == (None, None, False, "table")
