"""The one place that dispatches: an operator is a schema, a torch reference, a shape rule, a
gradient and kernels.

An operator is written once, as an `Op`. Its reference is plain PyTorch and *is* the definition.
Backends (`sparse3d.cpu`, `sparse3d.metal`, `sparse3d.cuda`) attach kernels to it; they are imported
at the first call for their device, and their `attach()` is called where they have one. A call runs
the kernel of the forced backend, else of the backend of the tensors' device, else the reference,
which never moves data between devices.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

NAMESPACE = "sparse3d"
BACKENDS = ("cpu", "metal", "cuda")
_BACKEND_OF_DEVICE = {"cpu": "cpu", "mps": "metal", "cuda": "cuda"}
_AUTOCAST_KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA", "mps": "AutocastMPS"}

_library = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
# Bound once: every call of an operator asks them all.
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_has_transforms = torch._C._are_functorch_transforms_active
_tracing_state = torch._C._get_tracing_state
_is_profiled = torch._C._autograd._profiler_enabled
_BelowAutograd = torch._C._AutoDispatchBelowAutograd
_is_recording = torch.is_grad_enabled
_is_autocast = torch.is_autocast_enabled
_OWN_TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))
"""Whose operators are torch's; a subclass may have others."""
_ops: dict[str, Op] = {}
_types: dict[torch.device, str] = {}


class BackendUnavailable(ImportError):
    """Raised by a backend package that cannot work here; its message is one line for `sparse3d
    doctor`."""


@dataclass(frozen=True)
class Kernel:
    """A backend's implementation of an operator; `when` says which calls it takes."""

    run: Callable[..., Any]
    when: Callable[..., bool] | None


class _State(threading.local):
    def __init__(self) -> None:
        self.forced: list[str] = []
        self.strict = 0


_state = _State()
_load_lock = threading.RLock()
_load_errors: dict[str, str | None] = {}


def load(backend: str) -> str | None:
    """Import a backend once. Returns None when it works here, else the reason why not."""
    if backend not in _load_errors:
        with _load_lock:
            if backend not in _load_errors:
                _load_errors[backend] = _import_backend(backend)
    return _load_errors[backend]


def _import_backend(backend: str) -> str | None:
    name = f"{NAMESPACE}.{backend}"
    try:
        module = importlib.import_module(name)
        getattr(module, "attach", lambda: None)()
    except BackendUnavailable as error:
        return str(error)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return f"{name} is not part of this installation"
    return None


@contextmanager
def force(backend: str) -> Iterator[None]:
    """Route every operator, gradients included, to one backend in this thread, for tensors on any
    device."""
    if backend not in (*BACKENDS, "reference"):
        raise ValueError(f"backend must be one of {(*BACKENDS, 'reference')}, got {backend!r}")
    reason = None if backend == "reference" else load(backend)
    if reason is not None:
        raise BackendUnavailable(reason)
    _state.forced.append(backend)
    try:
        yield
    finally:
        _state.forced.pop()


@contextmanager
def strict() -> Iterator[None]:
    """Turn a fall back to the reference, where the device's backend is loaded, into a
    RuntimeError."""
    _state.strict += 1
    try:
        yield
    finally:
        _state.strict -= 1


def backends() -> dict[str, dict[str, str]]:
    """Operator x backend table: `kernel`, `reference` or the reason why the backend is not
    there."""
    reasons = {backend: load(backend) for backend in BACKENDS}
    return {
        name: {
            backend: reasons[backend] or ("kernel" if backend in op.kernels else "reference")
            for backend in BACKENDS
        }
        for name, op in sorted(_ops.items())
    }


def backend_for(device: torch.device) -> str:
    """The backend that a call for tensors on `device` goes to in this thread."""
    return _backend_of(_type_of(device))


def _backend_of(kind: str) -> str:
    forced = _state.forced
    return forced[-1] if forced else _BACKEND_OF_DEVICE.get(kind, "reference")


def _type_of(device: torch.device) -> str:
    try:
        return _types[device]
    except KeyError:  # reading `type` costs ten look-ups
        return _types.setdefault(device, device.type)


def _is_watched() -> bool:
    """Whether a mode, a functorch transform, a tracer or the profiler wants to see operators."""
    return bool(
        _dispatch_modes()
        or _function_modes()
        or _has_transforms()
        or _tracing_state() is not None
        or _is_profiled()
    )


class Op:
    """An operator under `torch.ops.sparse3d`: schema, reference, shape rule; gradient and kernels
    are attached.

    Args:
        schema: torch.library schema without namespace. The first tensor argument decides the
            device.
        reference: the definition in plain PyTorch, same signature as the schema, below autograd.
        fake: shape rule for `torch.compile` and `opcheck`.
    """

    def __init__(
        self, schema: str, *, reference: Callable[..., Any], fake: Callable[..., Any]
    ) -> None:
        self.name: str = _library.define(schema)  # type: ignore[no-untyped-call]
        self.reference = reference
        self.kernels: dict[str, Kernel] = {}
        self._apply: Callable[..., Any] | None = None
        self._casts = False
        self.__doc__ = reference.__doc__
        _library.impl(self.name, self._dispatch, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        self._qualname = f"{NAMESPACE}::{self.name}"
        torch.library.register_fake(self._qualname, fake, lib=_library)
        self.overload = getattr(getattr(torch.ops, NAMESPACE), self.name).default
        kinds = [str(argument.type) for argument in self.overload._schema.arguments]
        # Where its tensors stand; lists hold a backend's own.
        self._places = [
            at for at, kind in enumerate(kinds) if kind in ("Tensor", "Optional[Tensor]")
        ]
        self._leading = self._places[: min(2, kinds.count("Tensor"))]
        _ops[self.name] = self

    def __call__(self, *args: Any) -> Any:
        """The operator; straight to its kernel where nothing stands between, which spares a layer
        two passes through the dispatcher."""
        if torch.compiler.is_compiling() or _is_watched():
            return self.overload(*args)
        if _is_recording():
            return self._recorded(args)
        for place in self._leading:
            if type(args[place]) not in _OWN_TENSORS:
                return self.overload(*args)
        kind = _type_of(args[self._leading[0]].device)
        if kind not in _BACKEND_OF_DEVICE or (self._casts and _is_autocast(kind)):
            return self.overload(*args)
        with _BelowAutograd():  # or a view that a kernel returns would be one made in no_grad mode
            return self._run(_backend_of(kind), args)

    def _recorded(self, args: tuple[Any, ...]) -> Any:
        """A call in grad mode."""
        tracked = False
        for place in self._places:
            arg = args[place] if place < len(args) else None
            if arg is None:
                continue
            if type(arg) not in _OWN_TENSORS:
                return self.overload(*args)
            tracked = tracked or arg.requires_grad
        kind = _type_of(args[self._leading[0]].device)
        if kind not in _BACKEND_OF_DEVICE or (self._casts and _is_autocast(kind)):
            return self.overload(*args)
        if not tracked:
            with _BelowAutograd():
                return self._run(_backend_of(kind), args)
        return self.overload(*args) if self._apply is None else self._apply(*args)

    def _dispatch(self, *args: Any) -> Any:
        return self._run(backend_for(args[self._leading[0]].device), args)

    def _run(self, backend: str, args: tuple[Any, ...]) -> Any:
        if backend == "reference":
            return self.reference(*args)
        reason = _load_errors[backend] if backend in _load_errors else load(backend)
        if reason is None:
            kernel = self.kernels.get(backend)
            if kernel is not None and (kernel.when is None or kernel.when(*args)):
                return kernel.run(*args)
            if _state.strict:
                raise RuntimeError(
                    f"{self.name} must have a {backend} kernel for this call under strict(), "
                    "got none; leave strict() to run the torch reference"
                )
        return self.reference(*args)

    def kernel(
        self, *backends: str, when: Callable[..., bool] | None = None
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Attach a kernel of one or more backends. It may assume validated arguments on one
        device."""

        def attach(run: Callable[..., Any]) -> Callable[..., Any]:
            self.kernels.update(dict.fromkeys(backends, Kernel(run, when)))
            return run

        return attach

    def has_kernel(self, device: torch.device) -> bool:
        """Whether calls for tensors on `device` go to a backend that has a kernel. For operators
        that stand beside one of PyTorch's, which is as good elsewhere."""
        backend = backend_for(device)
        if backend == "reference" or load(backend) is not None:
            return False
        return backend in self.kernels

    def gradient(self, backward: Callable[..., Any], setup_context: Callable[..., None]) -> None:
        """Attach the gradient, written with other operators so that second derivatives exist.

        `backward(ctx, *grads)` returns one gradient per schema argument; `setup_context(ctx,
        inputs, output)` saves what it needs. Same forms as `torch.library.register_autograd`, at a
        fifth of its cost per call.
        """
        overload = self.overload

        def below(*args: Any) -> Any:
            with _BelowAutograd():
                return overload(*args)

        def beneath(*args: Any) -> Any:
            with _BelowAutograd():
                return self._dispatch(*args)

        def forward(ctx: Any, *args: Any) -> Any:
            output = below(*args) if _is_watched() else beneath(*args)
            setup_context(ctx, args, output)
            return output

        function = type(
            f"{self.name}_autograd",
            (torch.autograd.Function,),
            {"forward": staticmethod(forward), "backward": staticmethod(backward)},
        )

        def run(*args: Any) -> Any:
            if torch.is_grad_enabled() and any(
                isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args
            ):
                return function.apply(*args)  # type: ignore[attr-defined]
            return below(*args)

        self._apply = function.apply  # type: ignore[attr-defined]
        _library.impl(self.name, run, "Autograd")  # type: ignore[no-untyped-call]

    def autocast(self, *arguments: str) -> None:
        """Cast the named floating arguments as dense convolution does under autocast; float64 is
        left alone.

        `torch.library.register_autocast` fixes the dtype at registration; these kernels read the
        one in force.
        """
        self._casts = True
        names = [argument.name for argument in self.overload._schema.arguments]
        positions = [names.index(name) for name in arguments]
        for device_type, key in _AUTOCAST_KEYS.items():
            run = _autocast_kernel(self.overload, positions, device_type, key)
            _library.impl(self.name, run, key)  # type: ignore[no-untyped-call]


def _autocast_kernel(
    overload: Callable[..., Any], positions: list[int], device_type: str, key: str
) -> Callable[..., Any]:
    exclude = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def run(*args: Any) -> Any:
        dtype = torch.get_autocast_dtype(device_type)
        cast = list(args)
        for position in positions:
            value = cast[position]
            if (
                isinstance(value, torch.Tensor)
                and value.is_floating_point()
                and value.dtype != torch.float64
                and value.device.type == device_type
            ):
                cast[position] = value.to(dtype)
        with torch._C._ExcludeDispatchKeyGuard(exclude):
            return overload(*cast)

    return run
