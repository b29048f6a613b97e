"""The environment that the tests run in is whole."""

from collections import defaultdict
from importlib import metadata


def test_no_file_belongs_to_two_distributions():
    # the one that is installed last would break the other: a conflict in pyproject.toml keeps them apart
    owners = defaultdict(set)
    for distribution in metadata.distributions():
        for path in distribution.files or ():
            owners[distribution.locate_file(path)].add(distribution.name)
    assert {str(path): names for path, names in owners.items() if len(names) > 1} == {}
