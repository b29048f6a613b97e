"""Memory, arithmetic and bandwidth of GPUs, by their vendors' data sheets. Does no I/O.

Memory as printed (GB of 10^9 bytes where the driver reports up to 7 % more), arithmetic dense (without sparsity), of
the SXM or only form: NVIDIA A100 80GB (2021), H100 and H200 Tensor Core GPU, L4, L40S data sheets (2023-2024), DGX B200
data sheet (2024, an eighth of it), A10G by AWS's page of G5 instances; AMD Instinct MI300X data sheet (2023). Links
are PCIe x16 in one direction: generation 4 has 32 GB/s, generation 5 has 64 GB/s.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU."""

    name: str
    memory: float
    """Bytes."""
    flops: float
    """bf16 operations a second, dense."""
    bandwidth: float
    """Bytes a second between memory and cores."""
    link: float
    """Bytes a second to the host's memory, in one direction."""


_PCIE_4 = 32e9
_PCIE_5 = 64e9


GPUS: Mapping[str, Gpu] = {
    item.name: item
    for item in (
        Gpu("A10G-24GB", 24e9, 70e12, 0.600e12, _PCIE_4),
        Gpu("A100-40GB", 40e9, 312e12, 1.555e12, _PCIE_4),
        Gpu("A100-80GB", 80e9, 312e12, 2.039e12, _PCIE_4),
        Gpu("B200-180GB", 180e9, 2250e12, 8.0e12, _PCIE_5),
        Gpu("H100-80GB", 80e9, 989e12, 3.35e12, _PCIE_5),
        Gpu("H200-141GB", 141e9, 989e12, 4.8e12, _PCIE_5),
        Gpu("L4-24GB", 24e9, 121e12, 0.300e12, _PCIE_4),
        Gpu("L40S-48GB", 48e9, 362e12, 0.864e12, _PCIE_4),
        Gpu("MI300X-192GB", 192e9, 1307e12, 5.3e12, _PCIE_5),
    )
}


def gpu(name: str) -> Gpu:
    """Return the GPU of a name, which may omit the memory where there is one size only.

    Raises:
        KeyError: with the names to choose from.
    """
    result = [gpu for gpu in GPUS if name.upper() in {gpu.upper(), gpu.split("-")[0].upper()}]
    if len(result) == 1:
        return GPUS[result[0]]
    raise KeyError(", ".join(result or GPUS))
