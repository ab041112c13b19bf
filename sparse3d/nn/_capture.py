"""`capture`: a network, its maps included, as one CUDA graph that serves every scene."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .. import _check
from ..tensor import SparseConvTensor
from ._room import Room, Rooms, nowhere

__all__ = ["Captured", "capture"]


def capture(
    model: Callable[..., Any],
    x: SparseConvTensor,
    *args: Any,
    room: float = 1.25,
    train: bool = False,
) -> Captured:
    """A network whose maps and features are replayed as one CUDA graph.

    The host then only copies the scene in, whatever the number of layers: nothing is launched one
    by one. The graph has room for scenes larger than `x`; where one needs more, it is captured
    anew; in training that is an error. Off the GPU the same is computed without a graph.

    Rows of a scene must be in order of their batch ids. Sites that the network makes are in order
    of first occurrence.

    Args:
        model: a network in eval mode; with `train` any callable, such as a whole training step:
            forward, loss, backward, optimiser. Its layers are submanifold, inverse, 1 x 1 or of
            windows that do not overlap. Parameters are read at each call, attributes when it is
            captured.
        x: a scene of typical size.
        *args: further arguments of `model`. Tensors of as many rows as `x` are handed over with
            each scene; rows beyond it are zero, of integers -100, which `cross_entropy` leaves out.
            All else stays as it is here.
        room: rows of the graph per row of `x`.
        train: record gradients; batch norms in training count the sites alone. Capturing runs
            the step three times on `x`. The optimiser must be `capturable`, gradients set to
            None in the step, and autocast used with `cache_enabled=False`.

    Returns:
        A callable from a scene like `x`, and arguments like `args`, to what `model` returns.

    Raises:
        ValueError: if a layer is of another kind, or the model trains without `train`.
    """
    return Captured(model, x, args, room, train)


class _Rows:
    """An argument with a row for each site."""

    def __init__(self, like: torch.Tensor, rows: int) -> None:
        self.nothing = 0 if like.is_floating_point() else -100
        self.rows = like.new_full((rows, *like.shape[1:]), self.nothing)

    def fill(self, values: torch.Tensor, count: int, filled: int) -> None:
        self.rows[:count] = values
        if filled > count:
            self.rows[count:filled] = self.nothing


def _with_room(arg: Any, count: int, rows: int) -> Any:
    matches = isinstance(arg, torch.Tensor) and arg.ndim > 0 and arg.shape[0] == count
    return _Rows(arg, rows) if matches else arg


def _without_graph(value: Any) -> Any:
    if isinstance(value, SparseConvTensor):
        return value.replace_feature(value.features.detach())
    return value.detach() if isinstance(value, torch.Tensor) else value


_free_streams: dict[int, list[torch.cuda.Stream]] = {}


def _borrow_stream(holder: Captured) -> torch.cuda.Stream:
    """A stream of the current device for as long as `holder` lives.

    PyTorch keeps 32 MB for the matrix products of each stream, and graphs that run side by side
    must not share them: a stream goes to the next graph when its own is gone.
    """
    free = _free_streams.setdefault(torch.cuda.current_device(), [])
    stream = free.pop() if free else torch.cuda.Stream()  # type: ignore[no-untyped-call]
    weakref.finalize(holder, free.append, stream)
    return stream


class Captured:
    """What `capture` gives."""

    def __init__(
        self,
        model: Callable[..., Any],
        x: SparseConvTensor,
        args: tuple[Any, ...],
        room: float,
        train: bool,
    ) -> None:
        if not train and getattr(model, "training", False):
            _check.fail("model", "in eval mode to be captured", "training", "call model.eval()")
        self.model, self.room, self.train = model, room, train
        self.stream: torch.cuda.Stream | None = None
        self._build(x, args)

    def __call__(self, x: SparseConvTensor, *args: Any) -> Any:
        """What the model returns for a scene.

        Raises:
            ValueError: if the scene has another grid, batch size, dtype or device, or its rows are
                not in order of their batch ids; in training, if it needs more room. A step whose
                own sites lack room has then been made without them.
        """
        self._check_like(x)
        if len(args) != len(self.args):
            _check.fail("args", f"{len(self.args)} as captured", len(args))
        if len(x) <= self.features.shape[0]:
            made = self._run(x, args)
            if self._fits():
                return made
        if self.train:
            way_out = "capture a larger scene, or with more room"
            _check.fail("x", "within the room that was captured", f"{len(x)} rows", way_out)
        self._build(x, args)
        return self._run(x, args)

    def _check_like(self, x: SparseConvTensor) -> None:
        mine = self._facts(self.like)
        if self._facts(x) != mine:
            _check.fail("x", f"like the scene captured ({mine})", f"{self._facts(x)}")

    @staticmethod
    def _facts(x: SparseConvTensor) -> tuple[object, ...]:
        return x.spatial_shape, x.batch_size, x.features.shape[1], x.features.dtype, x.device

    def _build(self, x: SparseConvTensor, args: tuple[Any, ...]) -> None:
        self.like, device = x, x.device
        rows = math.ceil(self.room * len(x)) + 1
        self.empty = nowhere(rows, x.indices.shape[1], device)
        self.indices = self.empty.clone()
        self.features = x.features.new_zeros((rows, x.features.shape[1]))
        self.args = tuple(_with_room(arg, len(x), rows) for arg in args)
        self.filled, self.rooms = 0, Rooms()
        self.graph: torch.cuda.CUDAGraph | None = None
        self._fill(x, args)
        if device.type == "cuda":
            with torch.cuda.device(device):
                self._record()
        else:
            self._size()

    def _size(self) -> None:
        """Run once with room for anything, to see how many sites there are."""
        self._forward()
        counts = torch.stack(self.rooms.counts).tolist() if self.rooms.counts else []
        self.rooms = Rooms([math.ceil(self.room * count) + 1 for count in counts])

    def _record(self) -> None:
        # A graph that had this stream before may still run, in the stream's own workspace.
        torch.cuda.synchronize()
        # All passes on one stream: a gradient accumulates on the stream that it was first used on.
        if self.stream is None:
            self.stream = _borrow_stream(self)
        stream = self.stream
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._size()
            for _ in range(2):
                self._forward()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
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
        with torch.set_grad_enabled(self.train):
            made = self.model(x, *(getattr(arg, "rows", arg) for arg in self.args))
        self.result = pytree.tree_map(_without_graph, made)
        self.status = torch.stack([falls.long(), *self.rooms.counts])

    @torch.no_grad()
    def _fill(self, x: SparseConvTensor, args: tuple[Any, ...]) -> None:
        count = len(x)
        for mine, given in zip(self.args, args, strict=True):
            if isinstance(mine, _Rows):
                mine.fill(given, count, self.filled)
        self.indices[:count] = x.indices
        self.features[:count] = x.features
        if self.filled > count:
            self.indices[count : self.filled] = self.empty[count : self.filled]
            self.features[count : self.filled] = 0
        self.filled = count

    def _run(self, x: SparseConvTensor, args: tuple[Any, ...]) -> Any:
        self._fill(x, args)
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
