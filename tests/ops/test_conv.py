"""Convolution, its gradients and the fused form against the oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from contract.engine import on, oracle_map, pairs_of, random
from tolerance import DTYPES, FORWARD, GRADIENT, assert_close
from torch._subclasses.fake_tensor import FakeTensorMode

from sparse3d._cases.clouds import GEOMETRIES, Case, cases
from sparse3d.ops import _conv_reference
from sparse3d.ops import conv as ops

CASES = list(cases())
C_IN, C_OUT = 4, 6


@dataclass(frozen=True)
class Problem:
    """A convolution with everything its ops take."""

    found: oracle.Map
    num_in: int
    features: torch.Tensor
    weight: torch.Tensor
    grad: torch.Tensor
    groups: int = 1
    mirrored: bool = False

    @property
    def num_out(self) -> int:
        return len(self.found.out)

    def plans(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """What the backend precomputes for sums into dst and into src."""
        src, dst, splits = pairs_of(self.found)
        there = ops.conv_plan(src, dst, splits, self.num_in, self.num_out, self.mirrored)
        back = ops.conv_plan(dst, src, splits, self.num_out, self.num_in, self.mirrored)
        return list(there), list(back)


def problem(
    case: Case,
    rule: str,
    dtype: torch.dtype = torch.float32,
    c_in: int = C_IN,
    c_out: int = C_OUT,
    groups: int = 1,
) -> Problem:
    found = oracle_map(case, rule)
    volume = case.geometry.volume
    return Problem(
        found,
        len(case.coords),
        random((len(case.coords), c_in), dtype, 1),
        random((c_out, volume, c_in // groups), dtype, 2),
        random((len(found.out), c_out), dtype, 3),
        groups,
        rule == "submanifold",
    )


def check(p: Problem, with_plans: bool = True) -> None:
    """Forward and both gradients, with the backend's plans or without any."""
    pairs, dtype = pairs_of(p.found), p.features.dtype
    plan, back = p.plans() if with_plans else ([], [])
    expected = oracle.convolve(
        p.features.double().numpy(), p.weight.double().numpy(), p.found.pairs, p.num_out, p.groups
    )
    out = ops.conv_forward(p.features, p.weight, *pairs, plan, back, p.num_out, p.groups)
    assert out.dtype == dtype
    assert_close(out, expected, dtype, FORWARD, "forward")
    grad, weight, features = (v.double().numpy() for v in (p.grad, p.weight, p.features))
    to_features = ops.conv_input_grad(p.grad, p.weight, *pairs, back, plan, p.num_in, p.groups)
    assert_close(
        to_features,
        oracle.convolve_input_grad(grad, weight, p.found.pairs, p.num_in, p.groups),
        dtype,
        GRADIENT,
        "input gradient",
    )
    to_weight = ops.conv_weight_grad(p.features, p.grad, *pairs, plan, back, p.groups)
    assert_close(
        to_weight,
        oracle.convolve_weight_grad(features, grad, p.found.pairs, p.groups),
        dtype,
        GRADIENT,
        "weight gradient",
    )
    assert to_features.dtype == to_weight.dtype == dtype


CONVS = (ops.conv_forward, ops.conv_input_grad, ops.conv_weight_grad)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32(case: Case, backend: str) -> None:
    rule = "submanifold" if case.geometry.submanifold else "footprint"
    with on(backend, *CONVS):
        check(problem(case, rule))


FEW = [
    Case("interleaved", g) for g in GEOMETRIES if g.name in ("3d_subm_k3", "3d_k3s2p1", "2d_k4s2p1")
]


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("rule", ["floor", "given", "generative"])
@pytest.mark.parametrize("case", FEW, ids=str)
def test_other_rules(case: Case, rule: str, backend: str) -> None:
    with on(backend, *CONVS):
        check(problem(case, rule))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", FEW, ids=str)
def test_dtypes(case: Case, dtype: torch.dtype, backend: str) -> None:
    rule = "submanifold" if case.geometry.submanifold else "footprint"
    with on(backend, *CONVS):
        check(problem(case, rule, dtype))


@pytest.mark.parametrize(
    ("c_in", "c_out", "groups"),
    [(1, 1, 1), (3, 5, 1), (17, 33, 1), (6, 4, 2), (6, 6, 6), (4, 8, 4), (64, 32, 1), (40, 96, 8)],
)
@pytest.mark.parametrize("case", FEW[:2], ids=str)
def test_channels_and_groups(case: Case, c_in: int, c_out: int, groups: int, backend: str) -> None:
    rule = "submanifold" if case.geometry.submanifold else "footprint"
    with on(backend, *CONVS):
        check(problem(case, rule, torch.float32, c_in, c_out, groups))


@pytest.mark.parametrize("case", FEW, ids=str)
def test_without_plans_and_on_the_transposed_map(case: Case, backend: str) -> None:
    p = problem(case, "footprint")
    turned = oracle.Map(p.found.transposed().pairs, oracle.sites(case.coords))
    swapped = replace(
        p,
        found=turned,
        num_in=p.num_out,
        features=random((p.num_out, C_IN), torch.float32, 4),
        grad=random((p.num_in, C_OUT), torch.float32, 5),
    )
    with on(backend, *CONVS):
        check(p, with_plans=False)
        check(swapped)
        check(swapped, with_plans=False)


def test_pairs_that_repeat_a_destination_all_count(backend: str) -> None:
    """Duplicates under the footprint rule give one output several pairs within one tap."""
    case = Case("duplicates", GEOMETRIES[1])
    with on(backend, *CONVS):
        check(problem(case, "footprint"))


@pytest.mark.usefixtures("poisoned")
def test_outputs_without_pairs_are_zero(backend: str) -> None:
    case = FEW[0]
    p = problem(case, "given")
    assert len({dst for tap in p.found.pairs for _, dst in tap}) < p.num_out
    with on(backend, *CONVS):
        check(p)
        out = ops.conv_forward(p.features, p.weight, *pairs_of(p.found), [], [], p.num_out, 1)
    alone = sorted(set(range(p.num_out)) - {dst for tap in p.found.pairs for _, dst in tap})
    assert not out[alone].any()


def test_more_pairs_than_one_chunk_of_the_weight_gradient(backend: str) -> None:
    rows = 1300
    found = oracle.Map([[(row, row) for row in range(rows)], [(0, 5)]], [(0, 0)] * rows)
    p = Problem(
        found,
        rows,
        random((rows, 5), torch.float32, 1),
        random((3, 2, 5), torch.float32, 2),
        random((rows, 3), torch.float32, 3),
    )
    with on(backend, ops.conv_weight_grad):
        check(p)


@pytest.mark.parametrize("activation", ops.ACTIVATIONS)
@pytest.mark.parametrize("extras", ["", "bias", "residual", "bias residual", "bias residual scale"])
def test_fused(activation: str, extras: str, backend: str) -> None:
    p = problem(FEW[0], "submanifold")
    bias = random((C_OUT,), torch.float32, 6) if "bias" in extras else None
    residual = random((p.num_out, C_OUT), torch.float32, 7) if "residual" in extras else None
    scale = random((C_OUT,), torch.float32, 8) if "scale" in extras else None
    with on(backend, ops.conv_fused):
        plan, _ = p.plans()
        out = ops.conv_fused(
            p.features, p.weight, *pairs_of(p.found), plan, p.num_out, 1, bias, residual,
            activation, 0.1, scale,
        )  # fmt: skip
    expected = oracle.convolve(p.features.numpy(), p.weight.numpy(), p.found.pairs, p.num_out)
    expected = expected * (1.0 if scale is None else scale.numpy())
    for extra in (bias, residual):
        expected = expected + (0.0 if extra is None else extra.numpy())
    assert_close(out, oracle.activate(expected, activation, 0.1), torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fused_dtypes_and_strided(dtype: torch.dtype, backend: str) -> None:
    p = problem(FEW[1], "footprint", dtype, 8, 16, 2)
    bias, residual = random((16,), dtype, 6), random((p.num_out, 16), dtype, 7)
    with on(backend, ops.conv_fused):
        plan, _ = p.plans()
        out = ops.conv_fused(
            p.features, p.weight, *pairs_of(p.found), plan, p.num_out, 2, bias, residual,
            "relu", 0.0,
        )  # fmt: skip
    expected = oracle.convolve(
        p.features.double().numpy(), p.weight.double().numpy(), p.found.pairs, p.num_out, 2
    )
    expected += bias.double().numpy() + residual.double().numpy()
    assert out.dtype == dtype
    assert_close(out, oracle.activate(expected, "relu", 0.0), dtype)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_fused_takes_a_weight_as_layers_keep_it(groups: int, backend: str) -> None:
    p = problem(FEW[0], "submanifold", torch.float32, 8, 16 if groups < 8 else 8, groups)
    scale = random((len(p.weight),), torch.float32, 8)
    kept = p.weight.unflatten(1, FEW[0].geometry.kernel_size)
    with on(backend, ops.conv_fused):
        plan, _ = p.plans()
        rest = (*pairs_of(p.found), plan, p.num_out, groups, None, None, "relu", 0.0, scale)
        out, expected = (ops.conv_fused(p.features, weight, *rest) for weight in (kept, p.weight))
    assert kept.ndim > 3
    assert torch.equal(out, expected)


# ---------------------------------------------------------------------------------------- gradients


def _small(groups: int = 1) -> Problem:
    coords = np.array([[0, 1], [0, 2], [0, 4], [1, 2]], np.int32)
    found = oracle.footprint_map(coords, (3,), (2,), (1,), (1,), None)
    width = groups + 1 if groups == 1 else groups
    return Problem(
        found,
        len(coords),
        random((len(coords), width), torch.float64, 1),
        random((width, 3, width // groups), torch.float64, 2),
        random((len(found.out), width), torch.float64, 3),
        groups,
    )


@pytest.mark.parametrize("groups", [1, 2])
def test_first_and_second_derivatives(groups: int, backend: str) -> None:
    p = _small(groups)
    pairs = pairs_of(p.found)

    def forward(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ops.conv_forward(x, w, *pairs, plan, back, p.num_out, groups)  # type: ignore[no-any-return]

    def input_grad(g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ops.conv_input_grad(g, w, *pairs, back, plan, p.num_in, groups)  # type: ignore[no-any-return]

    def weight_grad(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return ops.conv_weight_grad(x, g, *pairs, plan, back, groups)  # type: ignore[no-any-return]

    x, w, g = (v.clone().requires_grad_() for v in (p.features, p.weight, p.grad))
    with on(backend, *CONVS):
        plan, back = p.plans()
        for call, inputs in ((forward, (x, w)), (input_grad, (g, w)), (weight_grad, (x, g))):
            assert torch.autograd.gradcheck(call, inputs)
            assert torch.autograd.gradgradcheck(call, inputs)


def test_gradients_of_one_side_only(backend: str) -> None:
    p = _small()
    pairs = pairs_of(p.found)
    with on(backend, *CONVS):
        for wanted in (0, 1):
            x, w = p.features.clone(), p.weight.clone()
            (x, w)[wanted].requires_grad_()
            ops.conv_forward(x, w, *pairs, [], [], p.num_out, 1).backward(p.grad)
            assert ((x.grad is None), (w.grad is None)) == (wanted == 1, wanted == 0)


def test_second_gradients_of_one_side_only(backend: str) -> None:
    p = _small()
    pairs = pairs_of(p.found)
    calls: tuple[
        tuple[Callable[..., torch.Tensor], torch.Tensor, torch.Tensor, tuple[int, ...]], ...
    ] = (
        (ops.conv_input_grad, p.grad, p.weight, (p.num_in, 1)),
        (ops.conv_weight_grad, p.features, p.grad, (1,)),
    )
    with on(backend, *CONVS):
        for call, left, right, rest in calls:
            both = [left.clone().requires_grad_(), right.clone().requires_grad_()]
            call(*both, *pairs, [], [], *rest).sum().backward()
            for wanted in (0, 1):
                sides = [left.clone(), right.clone()]
                sides[wanted].requires_grad_()
                call(*sides, *pairs, [], [], *rest).sum().backward()
                assert_close(sides[wanted].grad, both[wanted].grad, torch.float64)
                assert sides[1 - wanted].grad is None


# ------------------------------------------------------------------------------------- shape rules


def test_shape_rules_tell_what_kernels_make() -> None:
    """Every size differs from every other, so that none can stand for another."""
    coords = torch.tensor([[0, 1], [0, 2], [0, 3], [0, 7], [0, 9]])
    found = oracle.footprint_map(coords.numpy(), (3,), (2,), (1,), (1,), None)
    pairs, num_in, num_out = pairs_of(found), len(coords), len(found.out)
    x, w, g = (torch.ones(shape) for shape in ((num_in, 8), (10, 3, 4), (num_out, 10)))
    assert len({num_in, num_out, *x.shape, *w.shape}) == 6
    calls: tuple[tuple[Callable[..., torch.Tensor], tuple[Any, ...]], ...] = (
        (ops.conv_forward, (x, w, *pairs, [], [], num_out, 2)),
        (ops.conv_input_grad, (g, w, *pairs, [], [], num_in, 2)),
        (ops.conv_weight_grad, (x, g, *pairs, [], [], 2)),
        (ops.conv_fused, (x, w, *pairs, [], num_out, 2, None, None, "relu", 0.0)),
    )
    for call, arguments in calls:
        with FakeTensorMode() as mode:
            fake = call(
                *(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments)
            )
        assert fake.shape == call(*arguments).shape


@pytest.mark.parametrize("shape", [(3, 4, 2), (3, 2, 5, 2)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_scale_of_output_channels_is_folded_into_the_weight(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    weight, scale = random(shape, dtype, 1), random((3,), torch.float64, 2)
    folded = ops.scaled(weight, scale)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for channel in range(3):
        exact = weight[channel].to(wide) * scale[channel].to(wide)
        assert torch.equal(folded[channel], exact.to(dtype))
    assert folded.dtype == dtype
    assert ops.scaled(weight, None) is weight


# ---------------------------------------------------------------------------------- public function


@dataclass
class Pairs:
    """The least a kernel map has to offer."""

    src: torch.Tensor
    dst: torch.Tensor
    splits: torch.Tensor
    num_in: int
    num_out: int

    def plan(self) -> list[torch.Tensor]:
        return []

    def grad_plan(self) -> list[torch.Tensor]:
        return []


def _public(case: Case = FEW[1], groups: int = 1) -> tuple[Problem, Pairs, torch.Tensor]:
    p = problem(case, "footprint", groups=groups)
    weight = p.weight.reshape(C_OUT, *case.geometry.kernel_size, -1)
    return p, Pairs(*pairs_of(p.found), p.num_in, p.num_out), weight


def test_conv_takes_views_and_adds_the_bias_at_outputs_only(backend: str) -> None:
    p, pairs, weight = _public()
    bias = random((C_OUT,), torch.float32, 8).requires_grad_()
    wide = p.features.repeat_interleave(2, 1)[:, ::2]
    turned = weight.permute(4, 0, 1, 2, 3).contiguous().permute(1, 2, 3, 4, 0)
    assert not wide.is_contiguous()
    assert not turned.is_contiguous()
    with on(backend, *CONVS):
        out = ops.conv(wide, turned, pairs, bias)
        torch.autograd.backward(out, p.grad)
    expected = oracle.convolve(p.features.numpy(), p.weight.numpy(), p.found.pairs, p.num_out)
    assert_close(out, expected + bias.detach().numpy(), torch.float32)
    assert_close(bias.grad, p.grad.double().sum(0), torch.float32, GRADIENT)


def test_gradients_of_an_expanded_upstream_gradient(backend: str) -> None:
    """``sum().backward()`` hands over a gradient with stride 0."""
    p, pairs, weight = _public()
    x = p.features.clone().requires_grad_()
    with on(backend, *CONVS):
        torch.autograd.backward(ops.conv(x, weight, pairs).sum())
    ones = np.ones((p.num_out, C_OUT))
    assert_close(
        x.grad,
        oracle.convolve_input_grad(ones, p.weight.numpy(), p.found.pairs, p.num_in),
        torch.float32,
        GRADIENT,
    )


@pytest.mark.parametrize("asked", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("training", [True, False])
def test_autocast_gives_what_was_asked_and_leaves_float64(
    asked: torch.dtype, training: bool, backend: str
) -> None:
    p, pairs, weight = _public()
    x = p.features.clone().requires_grad_(training)
    w = weight.clone().requires_grad_(training)
    with on(backend, *CONVS), torch.autocast("cpu", asked):
        out = ops.conv(x, w, pairs)
        wide = ops.conv(p.features.double(), weight.double(), pairs)
        if not training:
            assert ops.fused_conv(x, w, pairs).dtype == asked
    assert out.dtype == asked
    assert wide.dtype == torch.float64
    rows, kernel = (v.to(asked).double().numpy() for v in (p.features, p.weight))
    assert_close(out, oracle.convolve(rows, kernel, p.found.pairs, p.num_out), asked)
    if training:
        with on(backend, *CONVS):
            torch.autograd.backward(out.sum())
        assert x.grad is not None
        assert x.grad.dtype == torch.float32
        assert w.grad is not None
        assert w.grad.dtype == torch.float32


@pytest.mark.parametrize("key", ["AutocastCPU", "AutocastCUDA", "AutocastMPS"])
def test_autocast_keys_are_registered(key: str) -> None:
    for op in (ops.conv_forward, ops.conv_fused):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"sparse3d::{op.name}", key)


def _wrong(what: str) -> tuple[Any, ...]:
    _, pairs, weight = _public()
    x = random((pairs.num_in, C_IN), torch.float32)
    return {
        "rows": (x[:-1], weight, pairs),
        "more rows": (torch.cat([x, x]), weight, pairs),
        "channels": (x[:, :-1], weight, pairs),
        "more channels": (torch.cat([x, x], 1), weight, pairs),
        "taps": (x, weight[:, :2], pairs),
        "flat": (x, weight.reshape(-1, C_IN), pairs),
        "dtype": (x, weight.double(), pairs),
        "integer": (x.int(), weight, pairs),
        "list": (x.tolist(), weight, pairs),
        "list of weights": (x, weight.tolist(), pairs),
        "sparse": (x.to_sparse(), weight, pairs),
        "sparse weight": (x, weight.to_sparse(), pairs),
        "one axis": (x[:, 0], weight, pairs),
        "three axes": (x[:, None], weight, pairs),
        "other device": (x.to("meta"), weight, pairs),
        "weight elsewhere": (x, weight.to("meta"), pairs),
        "pairs elsewhere": (x.to("meta"), weight.to("meta"), pairs),
        "half a group": (x, weight, pairs, None, 1.5),
        "groups": (x, weight, pairs, None, 4),
        "no groups": (x, weight, pairs, None, 0),
    }[what]


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("rows", ValueError, "features must be of .* rows as the kernel map's input side has"),
        ("more rows", ValueError, "features must be of .* rows as the kernel map's input side has"),
        ("channels", ValueError, "features and weight must be of matching channels"),
        ("more channels", ValueError, "features and weight must be of matching channels"),
        ("taps", ValueError, "weight must be of 27 taps as the kernel map has, got 18 taps"),
        ("flat", ValueError, r"weight must be of shape \[C_out, \*kernel_size, C_in / groups\]"),
        ("dtype", TypeError, "must be of one dtype, got torch.float32 and torch.float64; convert"),
        (
            "integer",
            TypeError,
            "features must be float32, float16, bfloat16 or float64, got torch.int32",
        ),
        ("list", TypeError, "features must be a torch.Tensor, got list"),
        ("list of weights", TypeError, "weight must be a torch.Tensor, got list"),
        ("sparse", TypeError, "features must be"),
        ("sparse weight", TypeError, "weight must be"),
        ("one axis", ValueError, "features must be"),
        ("three axes", ValueError, "features must be"),
        ("other device", ValueError, "on one device"),
        ("weight elsewhere", ValueError, "on one device"),
        ("pairs elsewhere", ValueError, "on one device"),
        ("half a group", TypeError, "groups must be"),
        ("groups", ValueError, "features and weight must be of matching channels for groups=4"),
        ("no groups", ValueError, "groups must be > 0, got 0"),
    ],
)
def test_bad_arguments(what: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ops.conv(*_wrong(what))


def test_kernels_and_channels_beyond_256(backend: str) -> None:
    coords = np.array([[0, 0, 0, 0], [0, 1, 3, 2]], np.int32)
    found = oracle.submanifold_map(coords, (7, 7, 7), (1, 1, 1))
    x, w = random((2, 260), torch.float32, 1), random((2, 343, 130), torch.float32, 2)
    with on(backend, *CONVS):
        out = ops.conv(x, w, Pairs(*pairs_of(found), 2, 2), groups=2)
    assert_close(out, oracle.convolve(x.numpy(), w.numpy(), found.pairs, 2, 2), torch.float32)


def test_the_plan_of_gradients_is_asked_for_when_either_side_wants_one() -> None:
    p, pairs, weight = _public()
    asked: list[bool] = []

    class Recording(Pairs):
        def grad_plan(self) -> list[torch.Tensor]:
            asked.append(True)
            return []

    recording = Recording(pairs.src, pairs.dst, pairs.splits, pairs.num_in, pairs.num_out)
    for wanted, times in (((), 0), ((0,), 1), ((1,), 2), ((0, 1), 3)):
        sides = [p.features.clone(), weight.clone()]
        for side in wanted:
            sides[side].requires_grad_()
        ops.conv(*sides, recording)
        assert len(asked) == times


def test_a_leak_is_a_hundredth_unless_said() -> None:
    p, pairs, weight = _public()
    out = ops.fused_conv(p.features, weight, pairs, activation="leaky_relu")
    plain = ops.conv(p.features, weight, pairs)
    assert_close(out, oracle.activate(plain.double().numpy(), "leaky_relu", 0.01), torch.float32)


def test_fused_refuses_gradients_and_strange_activations() -> None:
    p, pairs, weight = _public()
    with pytest.raises(ValueError, match="activation must be one of"):
        ops.fused_conv(p.features, weight, pairs, activation="gelu")
    ops.fused_conv(p.features, weight, pairs, residual=torch.ones(p.num_out, C_OUT))
    for rows, width in ((p.num_out, C_OUT + 1), (p.num_out + 1, C_OUT), (p.num_out, C_IN)):
        with pytest.raises(
            ValueError, match=rf"residual must be of shape \[{p.num_out}, {C_OUT}\], got"
        ):
            ops.fused_conv(p.features, weight, pairs, residual=torch.ones(rows, width))
    with pytest.raises(ValueError, match="fused_conv must be called under"):
        ops.fused_conv(p.features.clone().requires_grad_(), weight, pairs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("inner", [200, 256, 512, 1024])
def test_reference_products_do_not_depend_on_threads(
    inner: int, transposed: bool, dtype: torch.dtype, threads: Callable[[int], None]
) -> None:
    """Some BLAS cuts long sums over few outputs among its threads."""
    for rows, columns in ((24, 96), (48, 40), (513, 64)):
        left = torch.randn(inner, rows, dtype=dtype).t()
        right = torch.randn(inner, columns, dtype=dtype)
        if transposed:
            right = torch.randn(columns, inner, dtype=dtype).t()
        threads(1)
        first = _conv_reference._matmul(left, right)
        torch.testing.assert_close(first, left @ right, rtol=1e-3, atol=1e-3)
        for count in (2, 3, 8):
            threads(count)
            assert torch.equal(first, _conv_reference._matmul(left, right)), (rows, columns, count)
