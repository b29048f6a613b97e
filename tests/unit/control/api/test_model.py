from promptgroup_operator.api.model import HOLDS, KEEPS, ApiModel, rule, rule_of_change, rules


class Example(ApiModel):
    a_field: int = 1
    """Described."""


def test_fields_have_names_in_camel_case_and_descriptions():
    schema = Example.model_json_schema()
    assert schema["properties"]["aField"]["description"] == "Described."
    assert Example(a_field=2) == Example.model_validate({"aField": 2, "unknown": 3})


def test_a_rule_is_kept_with_its_twin():
    cel, change = "self.aField > 0 && 'test' == 'test'", "self.aField == oldSelf.aField && 'test' == 'test'"
    try:
        made = rule(cel, "aField is not positive", ".aField", holds=lambda each: each.a_field > 0)
        moved = rule_of_change(change, "aField cannot be changed", ".aField", keeps=lambda new, old: new == old)
        assert made == {"rule": cel, "message": "aField is not positive", "fieldPath": ".aField"}
        assert rules(made, moved)["json_schema_extra"]["x-kubernetes-validations"] == [made, moved]
        assert HOLDS[cel](Example())
        assert KEEPS[change](Example(), Example())
    finally:
        HOLDS.pop(cel), KEEPS.pop(change)
