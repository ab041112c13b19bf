"""What holds for every op alike: schema, shape rule, gradient, backends, threads, memory.

A new op gets all of it by adding a sample to ``samples.py``; the first test fails until it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from contract.engine import on, same_bytes
from tolerance import DTYPES, GRADIENT, assert_close, assert_same

from sparse3d import _registry
from sparse3d._cases.samples import EMPTY, SMALL, WIDE, Size, engine_ops, samples

OPS = engine_ops()
FLOATING = {
    "conv_forward", "conv_input_grad", "conv_weight_grad", "conv_fused", "pool_sum", "pool_max",
    "pool_max_grad", "segment_sum", "segment_max", "interpolate", "interpolate_grad",
    "dense_scatter", "dense_gather", "batch_norm_train", "batch_norm_grad", "linear_rows",
    "linear_weight_grad",
    "batch_norm_relu_train", "batch_norm_relu_grad", "batch_norm_relu_again",
}  # fmt: skip
# The gradient of a batch norm has second derivatives of its own (tests/ops/test_norm.py), none to
# the statistics it is handed.
NO_GRADIENT = {"conv_fused", "batch_norm_grad", "batch_norm_relu_grad", "batch_norm_relu_again"}
OPAQUE = {"coordinate_table", "conv_plan"}  # a backend's own layout

every_op = pytest.mark.parametrize("name", OPS)


def _listed(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def _compare(name: str, ours: Any, reference: Any, dtype: torch.dtype) -> None:
    for left, right in zip(_listed(ours), _listed(reference), strict=True):
        assert left.dtype == right.dtype
        assert left.device == right.device
        if left.is_floating_point():
            assert_close(left, right, dtype, GRADIENT, name)
        else:
            assert_same(left, right, name)


@pytest.mark.parametrize("size", [EMPTY, SMALL, WIDE], ids=lambda size: size.name)
@every_op
def test_every_op_has_samples_and_its_kernels_agree_with_the_reference(
    name: str, size: Size, backend: str
) -> None:
    op = OPS[name]
    with _registry.force("reference"):
        expected = [op(*args) for args in samples(op, size)]
    assert expected
    with on(backend, op):  # samples are made anew: tables and plans are the backend's own
        results = [op(*args) for args in samples(op, size)]
    for ours, reference in zip(results, expected, strict=True):
        if name not in OPAQUE:
            _compare(name, ours, reference, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", sorted(FLOATING))
def test_dtypes_come_out_as_they_went_in(name: str, dtype: torch.dtype, backend: str) -> None:
    op = OPS[name]
    with _registry.force("reference"):
        expected = [op(*args) for args in samples(op, SMALL, dtype)]
    with on(backend, op):
        results = [op(*args) for args in samples(op, SMALL, dtype)]
    for ours, reference in zip(results, expected, strict=True):
        first = _listed(ours)[0]
        assert first.dtype == dtype
        _compare(name, ours, reference, dtype)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("size", [EMPTY, SMALL], ids=lambda size: size.name)
@every_op
def test_fresh_memory_does_not_show(name: str, size: Size, backend: str) -> None:
    """Everything ``torch.empty`` hands out is NaN or 113 here; no output may show it."""
    op = OPS[name]
    with on(backend, op):
        for args in samples(op, size):
            for part in _listed(op(*args)):
                assert not part.is_floating_point() or not part.isnan().any()


@every_op
def test_same_bytes_twice_and_for_every_number_of_threads(
    name: str, backend: str, threads: Callable[[int], None]
) -> None:
    op = OPS[name]
    if name == "coordinate_table" and backend in ("metal", "cuda"):
        pytest.skip("the slots follow the schedule; what they answer does not, and is tested")
    with on(backend, op):
        threads(1)
        calls = samples(op, WIDE)
        first = [op(*args) for args in calls]
        for count in (1,) if backend == "metal" else (1, 2, 3, 8):
            threads(count)
            assert all(map(same_bytes, first, (op(*args) for args in calls))), f"{count} threads"


@pytest.mark.parametrize("name", sorted(FLOATING - NO_GRADIENT))
def test_same_bytes_of_gradients_for_every_number_of_threads(
    name: str, backend: str, threads: Callable[[int], None]
) -> None:
    op = OPS[name]
    with on(backend, op):
        threads(1)
        calls = samples(op, WIDE)
        first = [_gradients(op, args) for args in calls]
        assert all(first)
        for count in (1,) if backend == "metal" else (2, 3, 8):
            threads(count)
            again = [_gradients(op, args) for args in calls]
            assert all(map(same_bytes, first, again)), f"{count} threads"


def _gradients(op: _registry.Op, args: tuple[Any, ...]) -> list[torch.Tensor]:
    """Gradients to every floating argument, for an upstream gradient of ones times a ramp."""
    leaves = [
        arg.detach().requires_grad_()
        if isinstance(arg, torch.Tensor) and arg.is_floating_point()
        else arg
        for arg in args
    ]
    out = _listed(op(*leaves))[0]
    wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    ramp = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return list(torch.autograd.grad(out, wanted, ramp))


@pytest.mark.parametrize("name", sorted(FLOATING - NO_GRADIENT))
def test_empty_inputs_have_zero_gradients(name: str, backend: str) -> None:
    op = OPS[name]
    with on(backend, op):
        for args in samples(op, EMPTY):
            for gradient in _gradients(op, args):
                assert not gradient.any()


@every_op
def test_arguments_are_left_as_they_were(name: str, backend: str) -> None:
    op = OPS[name]
    with on(backend, op):
        for args in samples(op, SMALL):
            given = [arg for arg in args if isinstance(arg, torch.Tensor)]
            before = [arg.clone() for arg in given]
            op(*args)
            assert all(map(same_bytes, given, before))


# What opcheck finds in kernels it finds in the reference: it looks at schema, shape rule, autograd.
@pytest.mark.slow
@every_op
def test_opcheck(name: str) -> None:
    op = OPS[name]
    with _registry.force("reference"):
        for args in samples(op, SMALL)[:1]:
            leaves = tuple(
                arg.detach().requires_grad_()
                if name in FLOATING - NO_GRADIENT
                and isinstance(arg, torch.Tensor)
                and arg.is_floating_point()
                else arg
                for arg in args
            )
            torch.library.opcheck(op.overload, leaves)


def test_forcing_reaches_gradients_and_nests() -> None:
    op, seen = OPS["conv_forward"], []
    args = samples(op, SMALL)[0]
    reference = OPS["conv_weight_grad"].reference

    def spy(*given: Any) -> Any:
        seen.append(_registry.backend_for(torch.device("cpu")))
        return reference(*given)

    OPS["conv_weight_grad"].reference = spy
    try:
        with _registry.force("reference"):
            _gradients(op, args)
            with _registry.force("reference"):
                pass
            assert _registry.backend_for(torch.device("mps")) == "reference"
    finally:
        OPS["conv_weight_grad"].reference = reference
    assert seen == ["reference"]
    assert _registry.backend_for(torch.device("mps")) == "metal"
    with pytest.raises(ValueError, match="backend must be one of"), _registry.force("gpu"):
        pass


def test_strict_refuses_the_reference_where_the_backend_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    op = OPS["segment_sum"]
    args = samples(op, SMALL)[0]
    monkeypatch.setitem(_registry._load_errors, "cpu", None)
    monkeypatch.setattr(op, "kernels", {})
    op(*args)
    with (
        _registry.strict(),
        pytest.raises(RuntimeError, match="segment_sum must have a cpu kernel"),
    ):
        op(*args)
    with _registry.strict(), _registry.force("reference"):
        op(*args)
    monkeypatch.setattr(op, "kernels", {"cpu": _registry.Kernel(op.reference, lambda *_: False)})
    with (
        _registry.strict(),
        pytest.raises(RuntimeError, match="segment_sum must have a cpu kernel"),
    ):
        op(*args)
    monkeypatch.setattr(op, "kernels", {"cpu": _registry.Kernel(lambda *_: "kernel", None)})
    assert _registry._ops["segment_sum"]._dispatch(*args) == "kernel"
