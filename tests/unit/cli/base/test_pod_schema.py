"""Templates as users write them, against the types of the API."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_cli.base.pod_schema import MOST, faults
from promptgroup_contract.table import PromptRef
from promptgroup_operator.plan import desired
from support.builders import FINGERPRINT, group


def container(**fields):
    return {"spec": {"containers": [{"name": "engine", **fields}]}}


FITS = {
    "quantities as numbers": container(resources={"limits": {"cpu": 1, "memory": "1.5Gi"}, "requests": {"cpu": 0.5}}),
    "a port by number and by name": container(
        livenessProbe={"httpGet": {"port": 8000}}, readinessProbe={"tcpSocket": {"port": "http"}}
    ),
    "a volume of a size": {"spec": {"volumes": [{"name": "a", "emptyDir": {"medium": "Memory", "sizeLimit": 1024}}]}},
    "null": {"spec": {"nodeSelector": None}, "metadata": {"annotations": {"a": None}}},
    "abbreviations": {"spec": {"hostIPC": False, "dnsConfig": {"nameservers": ["1.1.1.1"]}, "setHostnameAsFQDN": True}},
    "an affinity": {
        "spec": {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a"]}]}]
                    }
                }
            }
        }
    },
}
FAULTS = {
    "a number as a text": (container(args=["--port", 8000]), "containers[engine].args[1] is 8000 without quotes"),
    "true as a text": (
        {"spec": {"nodeSelector": {"gpu": True}}},
        'spec.nodeSelector[gpu] is true without quotes, and must be a text: write "true"',
    ),
    "a text as a number": ({"spec": {"priority": "1"}}, "spec.priority is a text, and must be a whole number"),
    "a fraction": ({"spec": {"priority": 1.5}}, "spec.priority is 1.5 without quotes, and must be a whole number"),
    "true as a number": ({"spec": {"priority": True}}, "must be a whole number"),
    "a text as a truth": ({"spec": {"hostNetwork": "yes"}}, "spec.hostNetwork is a text, and must be true or false"),
    "a list as a map": ({"spec": {"nodeSelector": ["a"]}}, "spec.nodeSelector is a list, and must be a map of texts"),
    "a text as a list": (container(command="sh"), "command is a text, and must be a list: put '- ' before its items"),
    "a text as a map": ({"spec": "x"}, "spec is a text, and must be a map of fields"),
    "a quantity that is a list": (container(resources={"limits": {"cpu": [1]}}), "limits[cpu] is a list"),
    "a word as a quantity": (
        container(resources={"limits": {"cpu": "two"}}),
        'limits[cpu] is "two", and must be a number such as 2, 500m or 64Gi',
    ),
    "a unit that Kubernetes has not": (
        container(resources={"requests": {"memory": "1.5GiB"}}),
        'is "1.5GiB", and must',
    ),
    "a volume of no size": ({"spec": {"volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1 Gi"}}]}}, 'is "1 Gi"'),
    "no item": ({"spec": {"tolerations": [None]}}, "spec.tolerations[0] is null"),
    "a field of another object": ({"spec": {"replicas": 1}}, "spec.replicas is not a field that Kubernetes knows"),
    "another case": (container(volumemounts=[]), "did you mean volumeMounts?"),
    "a word": ({"spec": {"tolerations": [{"operator": "Exist"}]}}, 'is "Exist", and must be one of Exists, Equal'),
}


@pytest.mark.parametrize("case", FITS)
def test_what_an_api_server_takes_has_no_fault(case):
    assert faults(FITS[case]) == []


@pytest.mark.parametrize("case", FAULTS)
def test_what_it_does_not_take_is_named_with_the_way_out(case):
    template, expected = FAULTS[case]
    assert len(faults(template)) == 1
    assert expected in faults(template)[0]


def test_the_products_own_templates_have_none():
    made = desired.deployment(group(), FINGERPRINT, 1, PromptRef("ConfigMap", "a"), records={})
    assert faults(made["spec"]["template"]) == []


def test_few_faults_are_listed():
    found = faults({"spec": {f"x{number}": 1 for number in range(100)}})
    assert (len(found), found[-1]) == (MOST + 1, "and more")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
FIELDS = st.sampled_from(["containers", "tolerations", "nodeSelector", "securityContext", "volumes", "affinity"])


@given(st.dictionaries(FIELDS, JSON, max_size=3))
def test_any_template_is_read_to_its_end(spec):
    assert len(faults({"spec": spec})) <= MOST + 1
