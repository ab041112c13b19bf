"""Int8 layers: importable, so that code which only names them runs, and refusing to be made."""

from __future__ import annotations

from typing import NoReturn

from torch import nn

__all__ = ["Int8Layer"]


class Int8Layer(nn.Module):
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
