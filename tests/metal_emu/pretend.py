"""A GPU that is not there: tensors that say they are on `mps`, whose values are CPU tensors.

Code runs as it would on a Mac: the registry chooses Metal by the tensors' device, the kernels run
in the emulator, and all else that PyTorch would run on the GPU is looked at first. Operators that
are wrong there, or differ from run to run, are refused (`RULES`), and so are operators whose
tensors lie on two devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from sparse3d import _registry

from .device import Library
from .harness import Session, replaced

MPS = torch.device("mps:0")
_COPIES = {"copy_", "_to_copy", "index", "index_put_", "_index_put_impl_", "set_"}
"""Operators that take tensors of two devices; indices may lie on the CPU."""


class WrongOnMps(RuntimeError):
    """An operator of PyTorch was called on the GPU that must not be relied on there."""


def _integral(tensor: Any, *_: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and not tensor.is_floating_point()


def _always(*_: Any) -> bool:
    return True


def _product(*args: Any) -> bool:
    """A matrix product whose inner dimension can be the number of rows, or whose sum is rounded in
    half precision by rules that Apple does not tell."""
    matrices = [a for a in args if isinstance(a, torch.Tensor) and a.ndim >= 2]
    return matrices[0].dtype != torch.float32 or matrices[0].shape[-1] > LONGEST_INNER


LONGEST_INNER = 64
"""Tests give layers fewer channels, and clouds more rows."""

RULES: dict[str, tuple[Callable[..., bool], str]] = {
    **dict.fromkeys(
        ("_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"),
        (_always, "wrong inverse for keys above 2^24, wrong counts"),
    ),
    **dict.fromkeys(
        ("sort", "argsort", "msort", "topk", "kthvalue", "median"),
        (_always, "wrong for int64 past 256 elements, strides ignored"),
    ),
    **dict.fromkeys(("cumsum", "cumsum_", "cumprod"), (_integral, "depends on macOS")),
    **dict.fromkeys(("bincount", "histc"), (_always, "takes seconds")),
    **dict.fromkeys(
        (
            *("index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce"),
            *("scatter_reduce_", "index_reduce", "index_reduce_", "embedding_dense_backward"),
        ),
        (_always, "float atomics: another result every time"),
    ),
    **dict.fromkeys(
        ("index_put", "index_put_", "_index_put_impl_"),
        (lambda *a: len(a) > 3 and bool(a[3]), "float atomics: another result every time"),
    ),
    **dict.fromkeys(("abs", "abs_"), (_integral, "goes through float32: wrong above 2^24")),
    **dict.fromkeys(
        ("gather", "index_select"),
        (lambda x, *_: x.dtype == torch.int32, "wrong near 2^31 in torch 2.7"),
    ),
    **dict.fromkeys(
        ("mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "linear"),
        (_product, "wrong for inner dimensions of 32,767 and more"),
    ),
}
"""What design notes list as wrong or not repeatable on MPS, by name of the ATen operator."""


_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastMPS)


class Pretend(torch.Tensor):
    """Says that it is on the GPU. For C++ it is a meta tensor, which autograd leaves alone.

    Autocast casts for sparse3d's own operators; PyTorch's look for a tensor that C++ takes to be
    on the GPU. Saved, it is its values."""

    elem: torch.Tensor

    @staticmethod
    def __new__(cls, elem: torch.Tensor) -> Pretend:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            device="meta",
            _extra_dispatch_keys=_AUTOCAST,
        )
        made.elem = elem.detach()
        return made

    @property
    def device(self) -> torch.device:
        return MPS

    @property
    def is_meta(self) -> bool:
        return False

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def new_tensor(self, data: Any, *, dtype: Any = None, **options: Any) -> torch.Tensor:
        return torch.tensor(data, dtype=dtype or self.dtype, device=MPS, **options)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.elem.__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return f"Pretend({self.elem!r})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} on the GPU outside of pretend()")


def _plain(value: Any) -> Any:
    return value.elem if isinstance(value, Pretend) else value


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Of arguments and results, which are nested in lists and tuples alone; torch's own function
    for that takes longer than the operators."""
    if isinstance(value, (list, tuple)):
        return type(value)([_mapped(change, part) for part in value])
    return change(value)


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


class _Dispatch(TorchDispatchMode):
    """Runs operators on the values; sparse3d's own by the registry."""

    def __init__(self, found: Callable[[str, str], None]) -> None:
        super().__init__()
        self._found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [*_tensors(args), *_tensors(kwargs.values())]
        held = [t for t in tensors if isinstance(t, Pretend)]
        device = kwargs.get("device")
        if not held and device is None:
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        with self:
            if func.namespace == "sparse3d" and held:
                return _registry._ops[name]._dispatch(*args)
            parts = func.decompose(*args, **kwargs)  # below autograd PyTorch would do it later
        if parts is not NotImplemented:
            return parts
        # Below Python the tensors are meta tensors, and so are those that autograd makes like them.
        on_gpu = bool(held) if device is None else torch.device(device).type in ("mps", "meta")
        if held:
            self._look(name, args, tensors, on_gpu)
        if device is not None:
            kwargs = {**kwargs, "device": "cpu" if on_gpu else device}
            kwargs.pop("non_blocking", None)
        plain = {key: _mapped(_plain, value) for key, value in kwargs.items()}
        results = func(*_mapped(_plain, args), **plain)
        if name == "_to_copy" and held and not on_gpu:
            return results
        owners = {id(t.elem): t for t in held}

        def wrap(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            if id(value) in owners:
                return owners[id(value)]
            if on_gpu and value.dtype == torch.float64:
                self._found(name, "there is no float64")
            return Pretend(value) if on_gpu else value

        return _mapped(wrap, results)

    def _look(self, name: str, args: Any, tensors: list[torch.Tensor], on_gpu: bool) -> None:
        if name not in _COPIES:
            strangers = [t for t in tensors if not isinstance(t, Pretend) and t.ndim]
            if strangers:
                self._found(name, "tensors on two devices")
        matches, why = RULES.get(name, (None, ""))
        if matches is not None and matches(*args):
            self._found(name, why)


def _moved(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`torch.tensor` and its kin make the tensor on the CPU first, below all modes."""

    def made(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        if device is None or torch.device(device).type != "mps":
            return make(*args, device=device, **kwargs)
        return make(*args, **kwargs).to(MPS)

    return made


def _to(tensor: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """`Tensor.to`; a GPU without a number would ask a driver for it."""

    def numbered(value: Any) -> Any:
        named = isinstance(value, (str, torch.device)) and str(value) == "mps"
        return MPS if named else value

    options = {name: numbered(value) for name, value in options.items()}
    return _TO(tensor, *map(numbered, args), **options)


_TO = torch.Tensor.to


class _OnValues:
    """A compiled library whose kernels take the values of the tensors."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self._library, name)

        def launch(*args: Any, **options: Any) -> None:
            with _disable_current_modes():
                kernel(*map(_plain, args), **options)

        launch.max_threads_per_threadgroup = kernel.max_threads_per_threadgroup
        return launch


@contextmanager
def pretend(
    session: Session, found: Callable[[str, str], None] | None = None
) -> Iterator[Callable[[Any], Any]]:
    """Within it there is a GPU; gives what moves a tensor or a module there.

    `found` is told the operator and the reason; by default it raises `WrongOnMps`.
    """

    def refuse(name: str, why: str) -> None:
        raise WrongOnMps(f"aten.{name} on mps: {why}")

    def compiler(text: str) -> Any:
        return _OnValues(session.compile(text))

    with ExitStack() as stack:
        stack.enter_context(replaced("mps", compiler))
        for name in ("tensor", "as_tensor", "asarray"):
            stack.enter_context(mock.patch.object(torch, name, _moved(getattr(torch, name))))
        stack.enter_context(mock.patch.object(torch.Tensor, "to", _to))
        # Tensors that wrap others know no inference mode.
        stack.enter_context(mock.patch.object(torch, "inference_mode", torch.no_grad))
        stack.enter_context(_Dispatch(found or refuse))
        yield lambda value: value.to(MPS)


__all__ = ["RULES", "Pretend", "WrongOnMps", "pretend"]
