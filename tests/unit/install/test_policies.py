"""What the policies of manifests/policies look at, by the schema of what they are about."""

import re
from pathlib import Path

from support.yamlfiles import document, documents

ROOT = Path(__file__).parents[3]
NAMES_A_SECRET = re.compile(r"secret", re.IGNORECASE)


def secrets_of(schema, path):
    """Paths of a schema whose values name Secrets: references to keys of one, and fields that are called after it."""
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        inner = field.get("properties", {})
        if name == "secretKeyRef" or (name == "credentialFrom" and inner.keys() >= {"name", "key"}):
            yield f"{here}.name"
        elif NAMES_A_SECRET.search(name):
            yield here
        else:
            yield from secrets_of(field, here)
            yield from secrets_of(field.get("items", {}), f"{here}[]")


def test_no_field_of_a_group_names_a_secret_past_the_template_policy():
    crd = document((ROOT / "crds/promptgroups.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    paths = sorted(secrets_of(schema, "object.spec"))
    assert len(paths) >= 8
    policy = next(documents((ROOT / "manifests/policies/templates.yaml").read_text()))
    checks = " ".join(each["expression"] for each in policy["spec"]["validations"])
    checked = (r"{} in variables\.secrets", r"{}\.all\((\w+), \1 in variables\.secrets\)")
    missing = [path for path in paths if not any(re.search(each.format(re.escape(path)), checks) for each in checked)]
    assert missing == []
