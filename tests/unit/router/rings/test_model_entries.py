from dataclasses import replace

from promptgroup_contract.caller_rules import CallerLimits, CallerRules
from promptgroup_contract.table import Sharing
from promptgroup_router.base.steps import at_once
from promptgroup_router.rings.building import build_index, index_steps
from support.keys import BY_KEY
from support.tables import group, revision, table


def test_a_weight_moves_neither_claims_of_others_nor_the_replicas_for_all_else():
    listed = [group("a"), group("b", revision("B"))]
    before = build_index(table(*listed))
    lighter = replace(listed[0], revisions=(replace(listed[0].revisions[0], weight=1),))
    after = at_once(index_steps(table(lighter, listed[1], version="v2"), before))
    one, other = (view.models["llama"].tenants["chat"] for view in (before, after))
    assert one.candidates is other.candidates
    assert one.claims.match("", "B") is other.claims.match("", "B")
    assert other.claims.match("", "You are the support assistant of Example Ltd.").revision.weight == 1


def test_a_second_namespace_gets_claims_of_its_own():
    mine, theirs = group("a"), group("b", revision("B"), namespace="other", created="2027")
    view = at_once(index_steps(table(mine, theirs), build_index(table(mine))))
    assert view.models["llama"].tenants["other"].claims.match("", "B") is not None
    assert view.models["llama"].tenants["chat"].claims.match("", "B") is None


def test_revisions_of_one_group_with_one_prompt_are_no_conflict():
    plain = revision("B")
    two = [
        replace(plain, fingerprint=number * 32, text_fingerprint=plain.fingerprint, served_model=f"tone-{number}")
        for number in "12"
    ]
    view = build_index(table(group("a", *two, model="tone", base_model="llama")))
    assert view.conflicts == ()
    assert view.models["tone"].claims.match("", "B").revision is two[0]
    other = group("b", replace(two[0], fingerprint="3" * 32), model="tone", base_model="llama", created="2027")
    (conflict,) = build_index(table(view.table.groups[0], other)).conflicts
    assert (conflict.group, conflict.keeper, conflict.fingerprint) == ("chat/b", "chat/a", plain.fingerprint)


def test_a_host_serves_undeclared_requests_of_callers_whom_an_older_guest_admits_too():
    guest = group("guest", revision("B"), created="2025", access=BY_KEY, sharing=Sharing.DEDICATED)
    view = build_index(table(guest, group("host", created="2026")))
    pools = view.models["llama"].tenants["chat"].by_access
    assert [(access, len(candidates.ready)) for access, candidates in pools] == [(None, 3), (BY_KEY, 0)]


def test_limits_of_an_older_guest_do_not_hold_for_undeclared_requests():
    strict = CallerRules(default=CallerLimits(requests_per_minute=1))
    guest = group("guest", revision("B"), created="2025", callers=strict, sharing=Sharing.DEDICATED)
    view = build_index(table(guest, group("host", created="2026")))
    assert view.models["llama"].tenants["chat"].candidates.rules.default == CallerLimits()
    alone = build_index(table(guest))
    assert alone.models["llama"].tenants["chat"].candidates.rules.default == strict.default
