import json
from pathlib import Path

from bench.peers.routers import Place
from bench.prefix.contestants import CONTESTANTS, DECLARED, ENGINES, PINNED, package_of
from bench.prefix.shapes import SHAPES, talks
from promptgroup_contract.encoding import decode_table


def test_no_request_begins_with_what_the_only_group_declares(tmp_path: Path):
    place = Place(
        [f"http://127.0.0.1:{9000 + index}" for index in range(ENGINES)], 1, 2, tmp_path, prompts=(), prefill_rate=0
    )
    CONTESTANTS[0].command(place)
    table = decode_table(json.loads((tmp_path / "table.json").read_text()))
    (group,) = table.groups
    assert len(group.revisions[0].slots) == ENGINES
    for shape in SHAPES:
        for talk in talks(shape, 1):
            assert DECLARED not in str(talk.body)[: 2 * len(DECLARED)]


def test_peers_get_the_engines_and_a_policy(tmp_path: Path):
    place = Place(["http://127.0.0.1:9000"], 1, 2, tmp_path, prompts=(), prefill_rate=0)
    for each in CONTESTANTS[1:]:
        command = each.command(place)
        assert PINNED[package_of(each)] in command[0]
        assert "http://127.0.0.1:9000" in command
        assert each.name.endswith(command[-1])
