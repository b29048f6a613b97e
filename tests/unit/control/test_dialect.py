from promptgroup_operator.api import EngineType
from promptgroup_operator.dialect import DIALECTS, VLLM, arguments


def test_every_engine_type_has_a_dialect():
    assert set(DIALECTS) == set(EngineType)


def test_the_operators_arguments_come_first_so_that_the_users_win():
    assert arguments(VLLM, "llama", 8000, ("--port=9000",)) == [
        "llama",
        "--port=8000",
        "--enable-prompt-tokens-details",
        "--port=9000",
    ]


def test_braces_in_names_and_arguments_are_left_alone():
    assert arguments(VLLM, "{port}", 1, ('--config={"a": 1}',))[::3] == ["{port}", '--config={"a": 1}']
