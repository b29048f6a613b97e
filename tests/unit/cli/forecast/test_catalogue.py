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
        ("meta-llama/Llama-2-7b-chat-hf", "meta-llama/Llama-2-7b-hf"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
        ("codellama/CodeLlama-7b-Python-hf", "codellama/CodeLlama-7b-hf"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "TinyLlama/TinyLlama-1.1B"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-ai/DeepSeek-V3"),
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


@pytest.mark.parametrize(
    ("name", "kilobytes"),
    [
        ("meta-llama/Llama-2-7b-hf", 512),
        ("meta-llama/Llama-2-13b-hf", 800),
        ("meta-llama/Llama-2-70b-hf", 320),
        ("meta-llama/Llama-3.1-8B", 128),
        ("facebook/opt-13b", 800),
    ],
)
def test_a_token_takes_what_is_published_of_well_known_models(name, kilobytes):
    shape = MODELS[name].shape
    assert 2 * shape.full * shape.heads * shape.width == kilobytes * 1024
