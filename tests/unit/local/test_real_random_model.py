import json

from promptgroup_local.real import random_model


def test_a_token_is_a_byte(tmp_path):
    random_model.write(tmp_path / "model")
    tokenizer = json.loads((tmp_path / "model/tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(256))
    assert (vocabulary["a"], vocabulary["Ġ"], vocabulary["Ċ"]) == (ord("a"), ord(" "), ord("\n"))
    assert [each["id"] for each in tokenizer["added_tokens"]] == [256, 257, 258, 259]


def test_a_token_takes_as_much_kv_as_one_of_an_8b_model(tmp_path):
    config = random_model.CONFIG
    kept = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"] * 2
    assert kept == 128 << 10
    assert config["vocab_size"] == 260
    assert config["hidden_size"] == config["num_attention_heads"] * config["head_dim"]
