"""An index that is made from the one before it is the one that the table alone gives."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.access import ANYBODY
from promptgroup_contract.table import Engine, ModelAlias, RoutingTable, Sharing, SlotState
from promptgroup_router.base.steps import at_once
from promptgroup_router.decision.composition import router_state
from promptgroup_router.placement.balancer import Balancer
from promptgroup_router.policy.health import Health
from promptgroup_router.rings.building import build_index, index_steps, replaced_steps, unchanged_steps
from support.keys import BY_KEY
from support.tables import group, revision, slot

texts = st.text(alphabet="aö", max_size=4)
slots = st.lists(
    st.builds(
        slot,
        st.just(0),
        st.sampled_from(SlotState),
        incarnation=st.sampled_from(["a", "b"]),
    ),
    max_size=3,
).map(lambda made: tuple(replace(each, index=at) for at, each in enumerate(made)))
revisions = st.lists(
    st.builds(
        revision,
        texts,
        slots,
        tools=st.sampled_from(["", "[1]"]),
        messages=st.sampled_from([(), (("user", "Hi"), ("assistant", "Yes"))]),
        known=st.booleans(),
        lends=st.booleans(),
        engine=st.sampled_from([Engine(), Engine("one", kv_tokens=1000), Engine("two")]),
    ),
    max_size=2,
    unique_by=lambda each: each.fingerprint,
)
groups = st.builds(
    lambda name, listed, fields: group(name, **fields, revisions=tuple(listed)),
    st.sampled_from("abcd"),
    revisions,
    st.fixed_dictionaries(
        {
            "namespace": st.sampled_from(["x", "y"]),
            "model": st.sampled_from(["llama", "qwen", "a"]),
            "created": st.sampled_from(["", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"]),
            "sharing": st.sampled_from(Sharing),
            "access": st.sampled_from([None, ANYBODY, BY_KEY]),
            "aliases": st.sampled_from([(), (ModelAlias("gpt"),), (ModelAlias("llama", "2026-01-01T00:00:00Z"),)]),
        }
    ),
)
tables = st.lists(groups, max_size=5, unique_by=lambda each: (each.namespace, each.name)).map(
    lambda made: RoutingTable(tuple(made), str(hash(tuple(made))))
)
asked = [(tools, text) for tools in ("", "[1]") for text in ("", "a", "aö", "aaaa", "öa", "öööö", "aöaö")]


def lookups(claims):
    """What a lookup of each text finds, by labels."""
    known = lambda count: '[["user","Hi"],["assistant","Yes"]]' if count == 2 else None  # noqa: E731
    return [
        (
            found.label if (found := claims.match(tools, text, namespace, known)) is not None else None,
            sorted(len(each.claim.system) for each in claims.alike(tools, text)),
            [len(each.system) for each in claims.longest(tools)],
        )
        for tools, text in asked
        for namespace in ("", "x", "y")
    ]


def behaviour(view):
    models = {
        name: (lookups(model.claims), {where: lookups(each.claims) for where, each in model.tenants.items()})
        for name, model in view.models.items()
    }
    return view, models, list(view.models), [list(model.tenants) for model in view.models.values()]


@given(listed=st.lists(tables, min_size=1, max_size=4))
def test_an_index_made_from_the_one_before_is_that_of_the_table_alone(listed):
    view = build_index(RoutingTable())
    for each in listed:
        before, view = view, at_once(index_steps(at_once(unchanged_steps(each, view.table)), view))
        assert behaviour(view) == behaviour(build_index(each))
        entries = {id(revision.candidates) for group in view.groups for revision in group.revisions}
        replaced = {id(candidates) for candidates in at_once(replaced_steps(before, view))}
        for known in before.groups:
            for had in known.revisions:
                assert (id(had.candidates) in replaced) is (id(had.candidates) not in entries)


@given(listed=st.lists(tables, min_size=1, max_size=4))
def test_whoever_may_be_sent_to_has_a_record(listed):
    state, plain = router_state(), Balancer(Health())
    for now, each in enumerate(listed):
        kept = state.index
        state.install(at_once(unchanged_steps(each, state.index.table)), "file", float(now))
        plain.install(state.index, float(now))
        recorded = state.balancer.members.replicas.keys()
        assert recorded == plain.members.replicas.keys() == {*state.index.ready, *state.index.draining}
        for entry in kept.groups:
            for had in entry.revisions:
                if not had.candidates.validity.ended:
                    assert all(state.index.ready[member.id] is member for member in had.candidates.members)
