"""Releases of LoRA adapters: no revision ever has another adapter, and no two adapters have one name or path."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promptgroup_operator.adapters.identity import MOUNT, Adapter, decode, encode, is_ours, of_spec, to_spec
from promptgroup_operator.api.loaded_weights import AdapterSource, AdapterSpec
from promptgroup_operator.world.snapshot import CONTAINER
from support.clustermodel import Model

PARTS = st.from_regex("[A-Za-z0-9_][A-Za-z0-9._-]{0,8}", fullmatch=True)
SOURCES = st.one_of(
    st.lists(PARTS, min_size=1, max_size=3).map(lambda parts: AdapterSource(folder="/".join(parts))),
    st.lists(PARTS, min_size=2, max_size=2).map(lambda parts: AdapterSource(hugging_face="/".join(parts))),
)
NAMES = st.from_regex("[A-Za-z0-9]([A-Za-z0-9._-]{0,6}[A-Za-z0-9])?", fullmatch=True)
ADAPTERS = st.builds(AdapterSpec, name=NAMES, source=SOURCES)

MISSING = {"prompt": {"systemFrom": {"configMapKeyRef": {"name": "missing", "key": "system"}}}}

RELEASED = [{"adapter": {"name": "tone", "source": {"folder": "b"}}}, MISSING, {"image": "engine:2"}, "settle"]
STARTED_WITH = ("--lora-modules=", "--lora-paths=")

EDITS = st.lists(
    st.one_of(
        st.sampled_from("abc").map(lambda folder: {"adapter": {"name": "tone", "source": {"folder": folder}}}),
        st.sampled_from("xy").map(lambda text: {"prompt": {"system": f"text {text}"}}),
        st.just(MISSING),
        st.sampled_from(["engine:1", "engine:2"]).map(lambda image: {"image": image}),
        st.sampled_from(["operate", "crash", "settle"]),
    ),
    max_size=12,
)


@given(ADAPTERS, ADAPTERS)
def test_each_source_has_a_path_and_a_name_of_its_own(one, other):
    first, second = of_spec(one), of_spec(other)
    assert (first == second) == (one == other)
    assert (first.served == second.served) == (first == second)
    assert to_spec(decode(encode(first))) == one
    assert is_ours(first.served, first.path)
    assert is_ours(first.served, second.path) == (first.path == second.path)


def modules(model):
    """Fingerprint of each Deployment → the adapter that its engines are started with."""
    found = {}
    for (kind, _), live in model.live.items():
        if kind == "Deployment":
            fingerprint = live["metadata"]["annotations"]["promptgroup.dev/fingerprint"]
            containers = live["spec"]["template"]["spec"]["containers"]
            (args,) = [each["args"] for each in containers if each["name"] == CONTAINER]
            found[fingerprint] = [each.partition("=")[2] for each in args if each.startswith(STARTED_WITH)]
    return found


@pytest.mark.heavy
@given(EDITS, st.integers(0, 5), st.sampled_from(["vLLM", "SGLang"]))
@example(RELEASED, 0, "vLLM")
@example(RELEASED, 0, "SGLang")
def test_no_revision_ever_has_another_adapter_and_no_path_two_revisions_of_one(edits, effects, engine):
    model = Model(
        datetime(2026, 11, 3, 12, tzinfo=UTC),
        {
            "model": "llama",
            "prompt": {"system": "text x"},
            "adapter": {"name": "tone", "source": {"folder": "a"}},
            "engine": {"type": engine, "image": "engine:1", "adapters": {"claimName": "adapters"}},
            "replicas": 2,
            "rollout": {"retireAfter": "1m", "retireDeadline": "2m"},
        },
    )
    seen: dict[str, list[str]] = {}

    def check():
        for fingerprint, given_modules in modules(model).items():
            assert seen.setdefault(fingerprint, given_modules) == given_modules
            assert len(given_modules) == 1

    model.settle(timedelta(seconds=10))
    check()
    for edit in edits:
        match edit:
            case "operate":
                model.surroundings()
                model.operate(effects)
            case "crash":
                model.crash()
            case "settle":
                model.settle(timedelta(seconds=10))
            case {"image": image}:
                model.edit(engine={**model.spec["engine"], "image": image})
            case dict():
                model.edit(**edit)
        check()
    by_folder = {f"{MOUNT}/{folder}": Adapter("tone", f"{MOUNT}/{folder}").served for folder in "abc"}
    assert {module for (module,) in seen.values()} <= {f"{name}={path}" for path, name in by_folder.items()}
