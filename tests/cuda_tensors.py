"""Runs CUDA kernels for tests that hold CPU tensors: moved there for a call, results moved back.

The oracles judge numpy arrays, so the tests of ops and point operators keep theirs on the CPU and
know nothing of devices. What a kernel returned on the CPU (`splits`, facts of a plan) is handed to
the next one on the CPU again, as a layer would. `tests/cuda` has the tests of tensors that live on
the GPU.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from sparse3d import _registry
from sparse3d._registry import Kernel, Op

HOST = {"splits", "clouds"}
"""Arguments that lie on the CPU by contract."""

_KEPT = 512
_enabled: set[str] = set()


def _counts_changes(tensor: torch.Tensor) -> bool:
    """Whether it has elements, and a version, which tensors of inference mode have not."""
    return tensor.numel() > 0 and not tensor.is_inference()


class _Twins:
    """What kernels returned, by the address of the CPU tensor that stands for it."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[torch.Tensor, int, torch.Tensor]] = OrderedDict()

    def remember(self, on_cpu: torch.Tensor, original: torch.Tensor) -> None:
        if _counts_changes(on_cpu):
            self._known[on_cpu.data_ptr()] = (on_cpu, on_cpu._version, original)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)

    def find(self, tensor: torch.Tensor) -> torch.Tensor | None:
        if not _counts_changes(tensor):
            return None
        held, version, original = self._known.get(tensor.data_ptr(), (None, 0, tensor))
        if held is None:
            return None
        same = held.shape == tensor.shape and held.dtype == tensor.dtype
        return original if same and held.is_contiguous() and version == tensor._version else None


_twins = _Twins()


def _to_gpu(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple) and value and isinstance(value[0], torch.Tensor):
        return [_to_gpu(name, item) for item in value]
    if not isinstance(value, torch.Tensor) or name in HOST or value.is_cuda:
        return value
    twin = _twins.find(value) if value.is_contiguous() else None
    return value.cuda() if twin is None else twin


def _back(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        on_cpu = value.cpu()
        _twins.remember(on_cpu, value)
        return on_cpu
    if isinstance(value, list | tuple):
        return type(value)(_back(item) for item in value)
    return value


def _moving(op: Op, run: Callable[..., Any]) -> Callable[..., Any]:
    names = [argument.name for argument in op.overload._schema.arguments]

    def moved(*args: Any) -> Any:
        if any(isinstance(a, torch.Tensor) and a.is_cuda for a in args):
            return run(*args)
        return _back(run(*(_to_gpu(n, a) for n, a in zip(names, args, strict=False))))

    return moved


def enable() -> None:
    """Puts this under every CUDA kernel of the process, once."""
    for name, op in _registry._ops.items():
        kernel = op.kernels.get("cuda")
        if kernel is not None and name not in _enabled:
            _enabled.add(name)
            when = kernel.when and _moving(op, kernel.when)
            op.kernels["cuda"] = Kernel(_moving(op, kernel.run), when)
