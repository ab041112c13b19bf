"""`cumm.gemm.algospec.core`: names of algorithms; the backend chooses its own."""

from __future__ import annotations

from enum import Enum

__all__ = [
    "GemmAlgo",
    "ShuffleStrideType",
    "TensorOp",
    "get_available_algo_str_from_arch",
    "get_min_arch_of_algo_str",
]

ARCHITECTURES = {
    "Simt": (3, 5),
    "SimtDP4A": (6, 1),
    "SimtDP2A": (6, 1),
    "Volta": (7, 0),
    "Turing": (7, 5),
    "Ampere": (8, 0),
}


class GemmAlgo(Enum):
    """The kinds of kernels that the peer makes."""

    Simt = "Simt"
    SimtDP4A = "SimtDP4A"
    SimtDP2A = "SimtDP2A"
    Volta = "Volta"
    Turing = "Turing"
    Ampere = "Ampere"


class ShuffleStrideType(Enum):
    """Which operands are gathered."""

    NoShuffle = "NS"
    ShuffleAC = "SAC"
    ShuffleAB = "SAB"


class TensorOp:
    """The shape of a tensor core's product.

    Args:
        shape: m, n, k.
        dtypes: of the operands; accepted.
    """

    def __init__(self, shape: tuple[int, int, int], dtypes: str = "") -> None:
        self.shape = shape

    def __getitem__(self, axis: int) -> int:
        return self.shape[axis]


def get_min_arch_of_algo_str(algo_str: str) -> tuple[int, int]:
    """The least compute capability that an algorithm needs."""
    return ARCHITECTURES[algo_str]


def get_available_algo_str_from_arch(arch: tuple[int, int]) -> list[str]:
    """Algorithms that a GPU of this compute capability could run; none of them is here."""
    return []
