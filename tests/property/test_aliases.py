"""The operator tells of the aliases that routers do not lead to a group's model, and of no other."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.table import Group, ModelAlias
from promptgroup_operator.plan.validate import taken_aliases
from promptgroup_operator.world.snapshot import OtherGroup
from support.builders import CREATED, group, world
from support.tables import settled

NAMES = ("gpt", "qwen", "alpha", "chat/alpha", "chat/support")
TIMES = ("2020-01-01T00:00:00Z", CREATED, "2030-01-01T00:00:00Z")
others = st.builds(
    OtherGroup,
    name=st.sampled_from(("alpha", "beta", "gpt", "zeta")),
    created=st.sampled_from(TIMES),
    model=st.sampled_from(("llama", "qwen", "gpt")),
    aliases=st.lists(st.sampled_from(NAMES), unique=True).map(tuple),
)


@given(st.lists(others, max_size=4, unique_by=lambda each: each.name), st.lists(st.sampled_from(NAMES), unique=True))
def test_operator_and_routers_agree_on_who_keeps_a_name(theirs: list[OtherGroup], aliases: list[str]) -> None:
    mine = OtherGroup("support", CREATED, "llama", tuple(aliases))
    table = [
        Group(
            "chat", each.name, each.model, each.created, (), aliases=tuple(ModelAlias(a, CREATED) for a in each.aliases)
        )
        for each in (mine, *theirs)
    ]
    told = {each.alias: each.keeper for each in settled(table).conflicts if each.group == "chat/support"}
    state = replace(world(of=group(modelAliases=aliases)), others=tuple(theirs))
    assert {alias: f"chat/{keeper}" for alias, keeper in taken_aliases(state).items()} == told
