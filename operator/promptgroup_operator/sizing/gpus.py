"""What GPUs have, by their vendors' data sheets. Pure.

Memory as printed (GB of 10^9 bytes where the driver reports up to 7 % more), arithmetic dense (without sparsity), of
the SXM or only form: NVIDIA A100 80GB (2021), H100 and H200 Tensor Core GPU, L4, L40S data sheets (2023-2024), DGX B200
data sheet (2024, an eighth of it), A10G by AWS's page of G5 instances; AMD Instinct MI300X data sheet (2023).
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU."""

    memory: float
    """Bytes."""
    flops: float
    """bf16 operations a second, dense."""
    bandwidth: float
    """Bytes a second between memory and cores."""


GPUS: Mapping[str, Gpu] = {
    "A10G-24GB": Gpu(24e9, 70e12, 0.600e12),
    "A100-40GB": Gpu(40e9, 312e12, 1.555e12),
    "A100-80GB": Gpu(80e9, 312e12, 2.039e12),
    "B200-180GB": Gpu(180e9, 2250e12, 8.0e12),
    "H100-80GB": Gpu(80e9, 989e12, 3.35e12),
    "H200-141GB": Gpu(141e9, 989e12, 4.8e12),
    "L4-24GB": Gpu(24e9, 121e12, 0.300e12),
    "L40S-48GB": Gpu(48e9, 362e12, 0.864e12),
    "MI300X-192GB": Gpu(192e9, 1307e12, 5.3e12),
}


def gpu(name: str) -> Gpu:
    """The GPU of a name, whose memory may be left out where there is one size only.

    Raises:
        KeyError: with the names that are known.
    """
    found = [known for known in GPUS if name.upper() in {known.upper(), known.split("-")[0].upper()}]
    if len(found) == 1:
        return GPUS[found[0]]
    raise KeyError(", ".join(found or GPUS))
