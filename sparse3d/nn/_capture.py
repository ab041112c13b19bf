"""`capture`: a network, its maps included, as one CUDA graph that serves every scene."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .. import _check
from ..tensor import SparseConvTensor
from ._room import Room, Rooms, nowhere

__all__ = ["Captured", "capture"]


def capture(
    model: nn.Module, x: SparseConvTensor, *args: Any, room: float = 1.25, **kwargs: Any
) -> Captured:
    """A network for inference whose maps and features are replayed as one CUDA graph.

    The host then only copies the scene in, whatever the number of layers: nothing is launched one
    by one. The graph has room for scenes larger than `x`; where one needs more, it is captured
    anew. Off the GPU the same is computed without a graph.

    Rows of a scene must be in order of their batch ids. Sites that the network makes are in order
    of first occurrence.

    Args:
        model: in eval mode; its layers are submanifold, inverse, 1 x 1 or of windows that do not
            overlap. Its parameters are read at each call, its attributes when it is captured.
        x: a scene of typical size.
        *args: further arguments of `model`, fixed.
        room: rows of the graph per row of `x`.
        **kwargs: further arguments of `model`, fixed.

    Returns:
        A callable from a scene like `x` to what `model` returns for it.

    Raises:
        ValueError: if a layer is of another kind, or the model trains.
    """
    return Captured(model, x, args, kwargs, room)


class Captured:
    """What `capture` gives."""

    def __init__(
        self,
        model: nn.Module,
        x: SparseConvTensor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        room: float,
    ) -> None:
        if model.training:
            _check.fail("model", "in eval mode to be captured", "training", "call model.eval()")
        self.model, self.args, self.kwargs, self.room = model, args, kwargs, room
        self._build(x)

    @torch.no_grad()
    def __call__(self, x: SparseConvTensor) -> Any:
        """What the model returns for a scene.

        Raises:
            ValueError: if the scene has another grid, batch size, dtype or device, or its rows are
                not in order of their batch ids.
        """
        self._check_like(x)
        if len(x) <= self.features.shape[0]:
            made = self._run(x)
            if self._fits():
                return made
        self._build(x)
        return self._run(x)

    def _check_like(self, x: SparseConvTensor) -> None:
        mine = self._facts(self.like)
        if self._facts(x) != mine:
            _check.fail("x", f"like the scene captured ({mine})", f"{self._facts(x)}")

    @staticmethod
    def _facts(x: SparseConvTensor) -> tuple[object, ...]:
        return x.spatial_shape, x.batch_size, x.features.shape[1], x.features.dtype, x.device

    @torch.no_grad()
    def _build(self, x: SparseConvTensor) -> None:
        self.like, device = x, x.device
        rows = math.ceil(self.room * len(x)) + 1
        self.empty = nowhere(rows, x.indices.shape[1], device)
        self.indices = self.empty.clone()
        self.features = x.features.new_zeros((rows, x.features.shape[1]))
        self.filled, self.rooms = 0, Rooms()
        self._fill(x)
        self._forward()
        counts = torch.stack(self.rooms.counts).tolist() if self.rooms.counts else []
        self.rooms = Rooms([math.ceil(self.room * count) + 1 for count in counts])
        self.graph: torch.cuda.CUDAGraph | None = None
        if device.type == "cuda":
            with torch.cuda.device(device):
                self._record()

    def _record(self) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._forward()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._forward()
        self.graph = graph

    def _forward(self) -> None:
        """The model on the rows in place; leaves its result and the counts."""
        self.rooms.counts.clear()
        self.rooms.made.clear()
        like = self.like
        x = SparseConvTensor(
            self.features, self.indices, like.spatial_shape, like.batch_size, check=False
        )
        x._coordinates = Room(self.indices, like.spatial_shape, like.batch_size, self.rooms)
        batch = self.indices[:, 0]
        falls = ((batch[1:] < batch[:-1]) & (batch[1:] >= 0)).any()
        self.sites = x._coordinates
        self.result = self.model(x, *self.args, **self.kwargs)
        self.status = torch.stack([falls.long(), *self.rooms.counts])

    def _fill(self, x: SparseConvTensor) -> None:
        count = len(x)
        self.indices[:count] = x.indices
        self.features[:count] = x.features
        if self.filled > count:
            self.indices[count : self.filled] = self.empty[count : self.filled]
            self.features[count : self.filled] = 0
        self.filled = count

    def _run(self, x: SparseConvTensor) -> Any:
        self._fill(x)
        self.counts: list[int] | None = None
        if self.graph is None:
            self._forward()
        else:
            self.graph.replay()
        return pytree.tree_map(self._cut, self.result)

    def _read(self) -> list[int]:
        """How many sites each set has that the network made; the host waits for the device."""
        if self.counts is None:
            falls, *self.counts = self.status.tolist()
            if falls:
                _check.fail("x", "in order of batch ids", "a batch id below the one before it")
        return self.counts

    def _fits(self) -> bool:
        sizes = self.rooms.sizes or []
        return all(count <= size for count, size in zip(self._read(), sizes, strict=True))

    def _cut(self, value: Any) -> Any:
        """A result without the rows that are no sites, in memory of its own."""
        if isinstance(value, SparseConvTensor):
            count = self.filled
            for made, found in zip(self.rooms.made, self._read(), strict=True):
                if value._coordinates is made:
                    count = found
            return SparseConvTensor(
                value.features[:count].clone(),
                value.indices[:count].clone(),
                value.spatial_shape,
                value.batch_size,
                check=False,
            )
        if not isinstance(value, torch.Tensor):
            return value
        whole = value.ndim > 0 and value.shape[0] == self.features.shape[0]
        return value[: self.filled].clone() if whole else value.clone()
