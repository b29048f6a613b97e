import pytest

from promptgroup_cli.forecast.catalogue import MODELS, model


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
        ("META-LLAMA/llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("google/gemma-3-27b-it", "google/gemma-3-27b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-30B-A3B"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "mistralai/Mistral-Small-24B-2501"),
    ],
)
def test_a_model_is_found_however_it_was_tuned(name, known):
    assert model(name) is MODELS[known]


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B-Instruct-FP8", "Llama-3.1-8B", "acme/house-model"])
def test_others_are_unknown(name):
    assert model(name) is None


@pytest.mark.parametrize("name", MODELS)
def test_what_computes_a_token_is_a_part_of_the_model(name):
    found = MODELS[name]
    assert 0 < found.active <= found.parameters
    assert 0.4 < found.weights / found.parameters <= 2
