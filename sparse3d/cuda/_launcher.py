"""Calls compiled Triton kernels without Triton's argument binder.

`kernel[grid](...)` inspects and specialises every argument of every call, which takes longer than
a small layer on the device. Here equal keys mean equal compiled code, by the caller's promise, so
that the compiled kernel is found by one look-up and called with addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from triton.runtime.jit import JITFunction

__all__ = ["ALIGNMENT", "Launcher", "Variant", "aligned"]

ALIGNMENT = 16
"""Bytes. Compiled code loads 16 bytes at a time from the start of every tensor."""


class Variant(NamedTuple):
    """What compiled code depends on beside the kernel: element types, constants, warps."""

    dtypes: tuple[torch.dtype, ...]
    constants: tuple[Any, ...]
    warps: int


class _Ready(NamedTuple):
    launch: Callable[..., None]
    function: Any
    before: tuple[Any, ...]
    constants: tuple[Any, ...]


class Launcher:
    """One Triton kernel: tensors first, then integers and floats, then constants.

    Integers must fit in 32 bits and be listed in the kernel's `do_not_specialize`.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._ready: dict[tuple[Variant, int], _Ready] = {}

    def __call__(
        self,
        variant: Variant,
        grid: tuple[int, int, int],
        tensors: Sequence[torch.Tensor | None],
        scalars: tuple[Any, ...],
        device: int,
    ) -> None:
        """Launch on the device's current stream; None tensors are never read."""
        ready = self._ready.get((variant, device))
        if ready is None:
            self._first(variant, grid, tensors, scalars, device)
            return
        if torch._C._cuda_getDevice() != device:
            with torch.cuda.device(device):
                self(variant, grid, tensors, scalars, device)
            return
        ready.launch(
            *grid,
            torch._C._cuda_getCurrentRawStream(device),
            ready.function,
            *ready.before,
            *[0 if tensor is None else tensor.data_ptr() for tensor in tensors],
            *scalars,
            *ready.constants,
        )

    def _first(
        self,
        variant: Variant,
        grid: tuple[int, int, int],
        tensors: Sequence[torch.Tensor | None],
        scalars: tuple[Any, ...],
        device: int,
    ) -> None:
        some = next(tensor for tensor in tensors if tensor is not None)
        given = [
            some.new_empty(1, dtype=dtype) if tensor is None else tensor
            for tensor, dtype in zip(tensors, variant.dtypes, strict=True)
        ]
        if not _is_direct(self.kernel):
            self.kernel[grid](*given, *scalars, *variant.constants, num_warps=variant.warps)
            return
        with torch.cuda.device(device):
            compiled = self.kernel[grid](
                *given, *scalars, *variant.constants, num_warps=variant.warps
            )
        self._ready[variant, device] = _Ready(*_entry(compiled), variant.constants)


def _is_direct(kernel: Any) -> bool:
    """Whether the kernel is compiled; Triton's interpreter has none."""
    return isinstance(kernel, JITFunction)


def _entry(compiled: Any) -> tuple[Callable[..., None], Any, tuple[Any, ...]]:
    """The C entry behind `compiled.run`, its function, and what comes before the arguments."""
    run = compiled.run
    # The metadata, then launch metadata and the hooks before and after a launch: none.
    rest = (compiled.packed_metadata, None, None, None)
    names = ("launch", "global_scratch_size", "profile_scratch_size", "launch_pdl")
    if not all(hasattr(run, name) for name in names):
        return run, compiled.function, rest
    if run.global_scratch_size or run.profile_scratch_size:
        return run, compiled.function, rest
    flags = (run.launch_cooperative_grid, run.launch_pdl, None, None)
    return run.launch, compiled.function, (*flags, *rest)


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, copied where it does not start on 16 bytes."""
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor
