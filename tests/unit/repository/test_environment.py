"""The environment that the tests run in is whole."""

import csv
from collections import defaultdict
from importlib import metadata


def test_no_file_belongs_to_two_distributions():
    # the one that is installed last would break the other: a conflict in pyproject.toml keeps them apart
    owners = defaultdict(set)
    for distribution in metadata.distributions():
        folder, name = str(distribution.locate_file("")), distribution.name
        for path, *_ in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
            owners[folder, path].add(name)
    assert owners
    assert {path: names for path, names in owners.items() if len(names) > 1} == {}
