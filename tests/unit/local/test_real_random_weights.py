import json
import struct
from itertools import pairwise

from promptgroup_local.real.random_weights import RANK, write_adapter, write_model

CONFIG = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "vocab_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
}


def read(file):
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def test_a_model_has_every_tensor_once_and_they_fill_the_file(tmp_path):
    write_model(tmp_path, CONFIG)
    header, content = read(tmp_path / "model.safetensors")
    assert len(header) == 3 + 2 * 9
    assert header["model.layers.1.self_attn.k_proj.weight"]["shape"] == [4, 8]
    ends = [each["data_offsets"] for each in header.values()]
    assert ends[0][0] == 0
    assert all(before[1] == after[0] for before, after in pairwise(ends))
    assert ends[-1][1] == len(content)


def test_adapters_differ_by_their_seed_alone(tmp_path):
    for name, seed in (("a", 1), ("b", 2), ("again", 1)):
        write_adapter(tmp_path / name, CONFIG, "tiny", seed)
    one, two, again = (read(tmp_path / name / "adapter_model.safetensors") for name in ("a", "b", "again"))
    assert one == again
    assert one[0] == two[0]
    assert one[1] != two[1]
    settings = json.loads((tmp_path / "a/adapter_config.json").read_text())
    assert (settings["base_model_name_or_path"], settings["r"]) == ("tiny", RANK)
