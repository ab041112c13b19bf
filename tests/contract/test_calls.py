"""A call goes straight to its kernel, unless something between wants to see the operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sparse3d.ops import conv

PAIRS = (
    torch.tensor([0, 1], dtype=torch.int32),
    torch.tensor([1, 0], dtype=torch.int32),
    torch.tensor([0, 2]),
)


def arguments(dtype: torch.dtype = torch.float32, grad: bool = False) -> tuple[Any, ...]:
    x = torch.ones(2, 3, dtype=dtype, requires_grad=grad)
    return x, torch.ones(4, 1, 3, dtype=dtype), *PAIRS, [], [], 2, 1


@pytest.fixture
def _straight(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise AssertionError("through the dispatcher")

    monkeypatch.setattr(conv.conv_forward, "overload", refused)


@pytest.mark.usefixtures("_straight")
@pytest.mark.parametrize("grad", [False, True])
def test_plain_calls_pass_the_dispatcher_by(grad: bool) -> None:
    args = arguments(grad=grad)
    out = conv.conv_forward(*args)
    assert out.requires_grad is grad
    if grad:
        out.sum().backward()
        assert torch.equal(args[0].grad, torch.full((2, 3), 4.0))


class _Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("grad", [False, True])
def test_modes_see_operators(grad: bool) -> None:
    with _Seen() as seen:
        conv.conv_forward(*arguments(grad=grad))
    assert "sparse3d::conv_forward" in seen.names


def test_the_profiler_sees_operators() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        conv.conv_forward(*arguments())
    assert any(event.key == "sparse3d::conv_forward" for event in seen.key_averages())


def test_autocast_casts() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert conv.conv_forward(*arguments()).dtype == torch.bfloat16
    assert conv.conv_forward(*arguments()).dtype == torch.float32


def test_subclasses_and_meta_tensors_take_the_long_way() -> None:
    class Named(torch.Tensor):
        pass

    x, *rest = arguments()
    assert isinstance(conv.conv_forward(x.as_subclass(Named), *rest), Named)
    x, weight, *_ = (value.to("meta") for value in arguments()[:2])
    pairs = [value.to("meta") for value in PAIRS]
    out = conv.conv_forward(x, weight, *pairs, [], [], 2, 1)
    assert out.is_meta
    assert out.shape == (2, 4)


def test_what_has_no_gradient_is_left_to_torch() -> None:
    """Which warns when someone asks for it."""
    x, weight, *pairs = arguments(grad=True)[:5]
    out = conv.conv_fused(x, weight, *pairs, [], 2, 1, None, None, "none", 0.0, None)
    assert out.requires_grad
