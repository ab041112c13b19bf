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


class Bound:
    """A kernel and a variant on one device: what a launch of them has in common with the next.

    Integers must fit in 32 bits and be listed in the kernel's `do_not_specialize`.
    """

    def __init__(self, kernel: Any, variant: Variant, device: int) -> None:
        self.kernel, self.variant, self.device = kernel, variant, device
        self._launch: Callable[..., None] | None = None
        self._before: tuple[Any, ...] = ()

    def __call__(
        self,
        grid: tuple[int, int, int],
        tensors: Sequence[torch.Tensor | None],
        scalars: tuple[Any, ...],
    ) -> None:
        """Launch on the device's current stream; None tensors are never read."""
        if self._launch is None:
            self._first(grid, tensors, scalars)
            return
        if torch._C._cuda_getDevice() != self.device:
            with torch.cuda.device(self.device):
                self(grid, tensors, scalars)
            return
        self._launch(
            *grid,
            torch._C._cuda_getCurrentRawStream(self.device),
            *self._before,
            *[0 if tensor is None else tensor.data_ptr() for tensor in tensors],
            *scalars,
            *self.variant.constants,
        )

    def _first(
        self,
        grid: tuple[int, int, int],
        tensors: Sequence[torch.Tensor | None],
        scalars: tuple[Any, ...],
    ) -> None:
        some, variant = next(tensor for tensor in tensors if tensor is not None), self.variant
        given = [
            some.new_empty(1, dtype=dtype) if tensor is None else tensor
            for tensor, dtype in zip(tensors, variant.dtypes, strict=True)
        ]
        arguments = (*given, *scalars, *variant.constants)
        if not _is_direct(self.kernel):
            self.kernel[grid](*arguments, num_warps=variant.warps)
            return
        with torch.cuda.device(self.device):
            compiled = self.kernel[grid](*arguments, num_warps=variant.warps)
        launch, self._before = _entry(compiled)
        self._launch = launch


class Launcher:
    """One Triton kernel: tensors first, then integers and floats, then constants."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._bound: dict[tuple[Variant, int], Bound] = {}

    def bound(self, variant: Variant, device: int) -> Bound:
        """The kernel for a variant on a device."""
        key = variant, device
        found = self._bound.get(key)
        return self._bound.setdefault(key, Bound(self.kernel, *key)) if found is None else found

    def __call__(
        self,
        variant: Variant,
        grid: tuple[int, int, int],
        tensors: Sequence[torch.Tensor | None],
        scalars: tuple[Any, ...],
        device: int,
    ) -> None:
        """Launch a variant on the device's current stream."""
        self.bound(variant, device)(grid, tensors, scalars)


def _is_direct(kernel: Any) -> bool:
    """Whether the kernel is compiled; Triton's interpreter has none."""
    return isinstance(kernel, JITFunction)


def _entry(compiled: Any) -> tuple[Callable[..., None], tuple[Any, ...]]:
    """The C entry behind `compiled.run`, and what comes between the stream and the arguments."""
    run = compiled.run
    # The metadata, then launch metadata and the hooks before and after a launch: none.
    rest = (compiled.packed_metadata, None, None, None)
    names = ("launch", "global_scratch_size", "profile_scratch_size", "launch_pdl")
    if not all(hasattr(run, name) for name in names):
        return run, (compiled.function, *rest)
    if run.global_scratch_size or run.profile_scratch_size:
        return run, (compiled.function, *rest)
    flags = (run.launch_cooperative_grid, run.launch_pdl, None, None)
    return run.launch, (compiled.function, *flags, *rest)


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, copied where it does not start on 16 bytes."""
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor
