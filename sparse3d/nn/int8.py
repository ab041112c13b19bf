"""Layers that would compute in int8: they can be named, and refuse to be made."""

from __future__ import annotations

from typing import NoReturn

from torch import nn

__all__ = [
    "LinearPerChannelWeight",
    "LinearPerChannelWeightReLU",
    "SparseConv",
    "SparseConvAddReLU",
    "SparseConvReLU",
]


class _Int8Layer(nn.Module):
    """A layer that is not implemented.

    Raises:
        NotImplementedError: always, when made.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        self._refuse()

    @classmethod
    def from_float(cls, *args: object, **kwargs: object) -> NoReturn:
        """Raises as the constructor does."""
        cls._refuse()

    @classmethod
    def from_reference(cls, *args: object, **kwargs: object) -> NoReturn:
        """Raises as the constructor does."""
        cls._refuse()

    @classmethod
    def _refuse(cls) -> NoReturn:
        raise NotImplementedError(
            f"{cls.__name__} must be left out with sparse3d, got a call; int8 quantisation is not "
            "implemented, use float16 or bfloat16 (torch.autocast)"
        )


class SparseConv(_Int8Layer):
    """A convolution: not here."""


class SparseConvReLU(_Int8Layer):
    """A convolution and ReLU: not here."""


class SparseConvAddReLU(_Int8Layer):
    """A convolution, sum and ReLU: not here."""


class LinearPerChannelWeight(_Int8Layer):
    """A linear layer: not here."""


class LinearPerChannelWeightReLU(_Int8Layer):
    """A linear layer and ReLU: not here."""
