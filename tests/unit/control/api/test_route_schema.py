import importlib

from promptgroup_contract.encoding import encode_group, encode_table
from promptgroup_contract.table import Prompt, RoutingTable
from promptgroup_contract.wire import codec_of
from promptgroup_operator.api.route_schema import prompt_route, schema_of
from promptgroup_operator.plan import prompt_route as routes
from promptgroup_operator.rollout import release
from sitegen import crds
from support import tables
from support.builders import NOW, group, pod, revision
from support.schemas import misfits

SPEC = prompt_route()["properties"]["spec"]

A_VALUE = '''
from dataclasses import dataclass, field

from promptgroup_contract.table import Group
from promptgroup_contract.wire import Count, wire


@dataclass(frozen=True, slots=True)
class LaterGroup(Group):
    """A group of a later version."""

    patience: int = field(default=0, metadata=wire("patienceSeconds", Count(most=600)))
    """Seconds that a request may wait."""
'''


def test_the_route_that_the_contract_encodes_is_what_the_schema_describes():
    rev = revision(pods=[pod("a", 0)])
    step = release.RevisionStep(rev.fingerprint, release.RevisionPhase.SERVING, 100, frozenset({0, 1}))
    of = group(modelAliases=["gpt"], responses={"cache": "Exact", "staleWhileRevalidate": "1m", "trustSeed": True})
    route = routes.route(of, [rev], {rev.fingerprint: step}, {rev.fingerprint: {"a": 0}}, {}, now=NOW)
    assert misfits(SPEC, encode_group(route)) == []


def test_what_only_files_have_is_no_field_of_a_prompt_route():
    revised = tables.group("support", tables.revision(prompt=Prompt("Be kind.")))
    (entry,) = encode_table(RoutingTable((revised,)))["groups"]
    assert misfits(SPEC, entry) == [".namespace is unknown", ".name is unknown", ".revisions[0].prompt is unknown"]


def test_what_routers_cannot_read_the_api_server_refuses():
    encoded = encode_group(tables.group()) | {"policy": "Random", "loadFactorPercent": 99}
    del encoded["model"]
    assert sorted(misfits(SPEC, encoded)) == [".loadFactorPercent is 99", ".model is missing", ".policy is Random"]


def test_a_field_is_one_description(tmp_path, monkeypatch):
    """It is in the codec, in the schema and on the reference page, without a word about it there."""
    (tmp_path / "later_group.py").write_text(A_VALUE)
    monkeypatch.syspath_prepend(tmp_path)
    later = importlib.import_module("later_group").LaterGroup
    made = later("chat", "support", "llama", "", (), patience=30)
    encoded = codec_of(later).write(made)
    assert encoded["patienceSeconds"] == 30
    assert codec_of(later).read(encoded, {"namespace": "chat", "name": "support"}) == made
    schema = schema_of(later)
    assert schema["properties"]["patienceSeconds"] == {
        "type": "integer", "minimum": 0, "maximum": 600, "description": "Seconds that a request may wait.",
    }  # fmt: skip
    assert (
        schema["properties"].items() >= {key: SPEC["properties"][key] for key in ("model", "created", "access")}.items()
    )
    page = crds.page_of(schema, "spec")
    assert "| `spec.patienceSeconds` | integer, 0 to 600 | | Seconds that a request may wait. |" in page
