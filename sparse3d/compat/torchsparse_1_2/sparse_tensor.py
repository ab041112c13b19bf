"""`torchsparse.sparse_tensor`."""

from __future__ import annotations

from typing import Any, ClassVar

from ..torchsparse.utils.utils import make_ntuple
from ..torchsparse_1_4.tensor import SparseTensor as _SparseTensor

__all__ = ["SparseTensor"]


class SparseTensor(_SparseTensor):
    """Features on sparse coordinates, torchsparse before 1.4.

    Args:
        feats: [N, C].
        coords: int32 [N, 4] (x, y, z, batch), multiples of the stride.
        cur_tensor_stride: of the coordinates.
        spatial_range: not the peer's; the layers hand it on.
        stride: the later name of `cur_tensor_stride`.
    """

    version: ClassVar[str] = "1.2"
    floors: ClassVar[bool] = True

    def __init__(
        self,
        feats: Any,
        coords: Any,
        cur_tensor_stride: Any = 1,
        spatial_range: tuple[int, ...] | None = None,
        *,
        stride: Any = None,
    ) -> None:
        steps = cur_tensor_stride if stride is None else stride
        super().__init__(feats, coords, steps, spatial_range)

    @property
    def s(self) -> Any:
        """One integer; a tuple where the axes differ."""
        return self.stride[0] if len(set(self.stride)) == 1 else self.stride

    @s.setter
    def s(self, stride: Any) -> None:
        self.stride = make_ntuple(stride, ndim=3)

    @property
    def coord_maps(self) -> dict[Any, Any]:
        return self._caches.cmaps

    @coord_maps.setter
    def coord_maps(self, value: dict[Any, Any]) -> None:
        self._caches.cmaps = value

    @property
    def kernel_maps(self) -> dict[Any, Any]:
        return self._caches.kmaps

    @kernel_maps.setter
    def kernel_maps(self, value: dict[Any, Any]) -> None:
        self._caches.kmaps = value

    def check(self) -> None:
        """Keep the coordinates under their stride."""
        self.coord_maps.setdefault(self.s, self.coords)
