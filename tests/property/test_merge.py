"""Merging a pod template: what the patch says holds, what it does not say stays."""

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.plan import desired
from promptgroup_operator.plan.merge import MERGE_KEYS, merge
from support.builders import group

NAMES = st.sampled_from(["a", "b", "c"])
FIELDS = st.sampled_from(["x", "y", "z"])
SCALARS = st.integers(0, 3) | st.booleans() | st.text("pq", max_size=2)


def keyed(values):
    """A list whose items merge by name, each name once."""
    item = st.fixed_dictionaries({"name": NAMES}, optional={"image": SCALARS, "args": st.lists(SCALARS, max_size=2)})
    return st.lists(item, max_size=3, unique_by=lambda each: each["name"]) | values


def objects(leaf):
    values = st.recursive(
        leaf | st.lists(SCALARS, max_size=2), lambda inner: st.dictionaries(FIELDS, inner, max_size=3), max_leaves=8
    )
    return st.fixed_dictionaries(
        {}, optional={"containers": keyed(st.nothing()), "x": values, "y": values, "z": values}
    )


BASES = objects(SCALARS)
PATCHES = objects(SCALARS | st.none())


@given(BASES)
def test_an_empty_patch_changes_nothing(base):
    assert merge(base, {}) == base


@given(BASES, PATCHES)
def test_a_patch_that_is_applied_changes_nothing_more(base, patch):
    once = merge(base, patch)
    assert merge(once, patch) == once


@given(BASES, PATCHES)
def test_neither_argument_is_changed(base, patch):
    kept = deepcopy((base, patch))
    merge(base, patch)
    assert (base, patch) == kept


@given(BASES, PATCHES)
def test_what_the_patch_says_holds(base, patch):
    assert covered(merge(base, patch), patch)


@given(BASES, PATCHES)
def test_what_the_patch_does_not_say_stays(base, patch):
    merged = merge(base, patch)
    for field in set(base) - set(patch):
        assert merged[field] == base[field]


@given(BASES, PATCHES)
def test_no_null_is_left(base, patch):
    assert not nulls(merge(base, patch))


def covered(merged, patch):
    for field, value in patch.items():
        if value is None:
            if field in merged:
                return False
        elif isinstance(value, dict):
            if not isinstance(merged[field], dict) or not covered(merged[field], value):
                return False
        elif field == "containers":
            items = {each["name"]: each for each in merged[field]}
            if not all(covered(items[each["name"]], each) for each in value):
                return False
        elif merged[field] != value:
            return False
    return True


def nulls(value):
    if isinstance(value, dict):
        return any(nulls(each) for each in value.values())
    return value is None


SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*MERGE_KEYS, *MERGE_KEYS.values(), "spec", "$patch", "x"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)
LABELS = st.fixed_dictionaries({}, optional={"app.kubernetes.io/name": SHAPES, "promptgroup.dev/x": SHAPES})
TEMPLATES = st.fixed_dictionaries(
    {},
    optional={"metadata": st.fixed_dictionaries({}, optional={"labels": LABELS | SHAPES}) | SHAPES, "spec": SHAPES},
)


@given(TEMPLATES)
def test_a_template_of_any_shape_is_merged_or_a_problem_of_its_own_group(template):
    problem = desired.template_problem(group(engine={"template": template}))
    assert problem is None or problem.reason == "InvalidTemplate"
