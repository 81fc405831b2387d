"""Vendors' nominal rates of GPUs: for results that hold no memory rate of their own, and for the matrix rate, which the driver does not tell.

Source: NVIDIA's data sheets of the H200, H100 and A100 and the white paper of GA102 (RTX 3090), each without sparsity and with float32
accumulation.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """`matrix_flop_per_s`: of float16 matrix products."""

    memory_bytes_per_s: float
    matrix_flop_per_s: float


#: {NVML's name of the GPU: its rates}
RATES = {
    "NVIDIA H200": Rates(4.8e12, 989e12),
    "NVIDIA H100 80GB HBM3": Rates(3.35e12, 989e12),
    "NVIDIA A100-SXM4-80GB": Rates(2.039e12, 312e12),
    "NVIDIA A100-SXM4-40GB": Rates(1.555e12, 312e12),
    "NVIDIA GeForce RTX 3090": Rates(0.936e12, 71e12),
}
