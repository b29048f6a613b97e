import json

import pytest

from bench.peers import mix, prose
from bench.peers.routers import CONTESTANTS, Place, own_engines
from promptgroup_contract.encoding import decode_table
from promptgroup_contract.table import Policy
from promptgroup_router.rings.building import build_index

ENGINES = [f"http://127.0.0.1:{9000 + index}" for index in range(mix.ENGINES)]


@pytest.fixture
def place(tmp_path):
    prompts = [(prose.OPENING + prose.words(100, 1, group), 110) for group in range(mix.GROUPS)]
    return Place(ENGINES, 8000, 8001, tmp_path, prompts, 1400)


def named(part):
    return next(each for each in CONTESTANTS if part in each.name)


def table_of(contestant, place):
    contestant.command(place)
    return decode_table(json.loads((place.folder / "table.json").read_text()))


def test_names_are_unique_and_ours_comes_first() -> None:
    assert len({each.name for each in CONTESTANTS}) == len(CONTESTANTS)
    assert CONTESTANTS[0].name == "promptgroup ExpectedTTFT"
    assert not CONTESTANTS[0].header


def test_every_engine_belongs_to_one_group() -> None:
    assert sorted(url for urls in own_engines(ENGINES) for url in urls) == ENGINES


def test_groups_with_own_engines_share_all_of_them(place) -> None:
    view = build_index(table_of(CONTESTANTS[0], place))
    assert len(view.groups) == mix.GROUPS
    assert not view.conflicts
    for group in view.groups:
        candidates = group.revisions[0].candidates
        assert candidates.policy is Policy.EXPECTED_TTFT
        assert len(candidates.members) == mix.ENGINES
        assert 1 <= len(candidates.ready) < mix.ENGINES


@pytest.mark.parametrize("policy", [Policy.BOUNDED_LOAD, Policy.LEAST_REQUEST, Policy.ROUND_ROBIN])
def test_one_pool_has_all_engines_and_every_request(place, policy) -> None:
    (group,) = build_index(table_of(named(policy.value), place)).groups
    assert group.revisions[0].candidates.policy is policy
    assert len(group.revisions[0].candidates.ready) == mix.ENGINES
    assert group.revisions[0].revision.system_bytes == len(prose.OPENING)


def test_peers_run_with_their_defaults_unless_they_are_called_tuned(place) -> None:
    for contestant in CONTESTANTS:
        if contestant.ours:
            continue
        command = contestant.command(place)
        assert [url for url in ENGINES if url in command] == ENGINES
        assert ("--cache-threshold" in command) == ("tuned" in contestant.name)
        assert not any("balance" in flag for flag in command)
