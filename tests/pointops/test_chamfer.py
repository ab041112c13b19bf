from __future__ import annotations

import point_oracle as oracle
import pytest
import torch
from point_oracle import make_cloud

from sparse3d.pointops import chamfer_distance


def _by_hand(x: torch.Tensor, y: torch.Tensor, norm: int) -> float:
    table = torch.from_numpy(oracle.distances32(x, y, norm)).double()
    return float(table.amin(1).mean() + table.amin(0).mean())


@pytest.mark.parametrize("norm", [1, 2])
def test_value(backend: str, shape: str, norm: int) -> None:
    x, y = make_cloud(shape, 80, 1), make_cloud(shape, 130, 2)
    loss, normals = chamfer_distance(x[None], y[None], norm=norm)
    assert normals is None
    assert float(loss) == pytest.approx(_by_hand(x, y, norm), rel=1e-5)


def test_lengths_and_weights(backend: str) -> None:
    x, y = torch.randn(3, 20, 3), torch.randn(3, 30, 3)
    x_lengths, y_lengths = torch.tensor([20, 7, 3]), torch.tensor([4, 30, 11])
    each = [_by_hand(x[b, : x_lengths[b]], y[b, : y_lengths[b]], 2) for b in range(3)]
    loss, _ = chamfer_distance(x, y, x_lengths, y_lengths, batch_reduction=None)
    assert loss.tolist() == pytest.approx(each, rel=1e-5)
    weights = torch.tensor([1.0, 0.0, 3.0])
    loss, _ = chamfer_distance(x, y, x_lengths, y_lengths, weights=weights)
    assert float(loss) == pytest.approx((each[0] + 3 * each[2]) / 4, rel=1e-5)
    loss, _ = chamfer_distance(x, y, x_lengths, y_lengths, weights=weights, batch_reduction="sum")
    assert float(loss) == pytest.approx(each[0] + 3 * each[2], rel=1e-5)
    assert float(chamfer_distance(x, y, weights=torch.zeros(3))[0]) == 0.0


def test_a_pair_without_points_adds_zero(backend: str) -> None:
    """NaN elsewhere. Lengths (0, 3), padding 4."""
    x = torch.randn(2, 4, 3, requires_grad=True)
    y = torch.randn(2, 4, 3)
    loss, _ = chamfer_distance(x, y, torch.tensor([0, 3]), batch_reduction=None)
    loss.sum().backward()
    assert float(loss.detach()[0]) == 0.0
    assert float(loss.detach()[1]) == pytest.approx(_by_hand(x[1, :3], y[1], 2), rel=1e-5)
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert (x.grad[0] == 0).all()
    assert (x.grad[1, 3] == 0).all()


def test_padding_may_hold_anything(backend: str) -> None:
    x, y = torch.randn(1, 5, 3), torch.randn(1, 5, 3)
    dirty = x.clone()
    dirty[0, 3:] = float("nan")
    lengths = torch.tensor([3])
    clean = chamfer_distance(x, y, lengths)[0]
    assert torch.equal(chamfer_distance(dirty, y, lengths)[0], clean)
    with pytest.raises(ValueError, match="x must be finite"):
        chamfer_distance(dirty, y)


def test_reductions(backend: str) -> None:
    x, y = torch.randn(2, 6, 3), torch.randn(2, 9, 3)
    (to_y, to_x), _ = chamfer_distance(x, y, batch_reduction=None, point_reduction=None)
    assert to_y.shape == (2, 6)
    assert to_x.shape == (2, 9)
    mean, _ = chamfer_distance(x, y, batch_reduction=None)
    assert torch.allclose(mean, to_y.mean(1) + to_x.mean(1))
    total, _ = chamfer_distance(x, y, batch_reduction=None, point_reduction="sum")
    assert torch.allclose(total, to_y.sum(1) + to_x.sum(1))
    largest, _ = chamfer_distance(x, y, batch_reduction=None, point_reduction="max")
    assert torch.equal(largest, torch.maximum(to_y.amax(1), to_x.amax(1)))
    one_way, _ = chamfer_distance(x, y, single_directional=True)
    assert torch.allclose(one_way, to_y.mean())


def test_normals(backend: str) -> None:
    x = torch.tensor([[[0.0, 0, 0], [1, 0, 0]]])
    up, down = torch.tensor([0.0, 0, 1]), torch.tensor([0.0, 0, -1])
    x_normals, y_normals = torch.stack([up, up])[None], torch.stack([up, down])[None]
    _, normals = chamfer_distance(x, x, x_normals=x_normals, y_normals=y_normals)
    assert float(normals) == pytest.approx(0.0, abs=1e-6)
    _, normals = chamfer_distance(x, x, x_normals=x_normals, y_normals=y_normals, abs_cosine=False)
    assert float(normals) == pytest.approx(2.0, abs=1e-6)


def test_strides_do_not_matter(backend: str) -> None:
    """A transposed view gave wrong distances elsewhere; gradients too."""
    wide = torch.randn(2, 3, 40)
    y = torch.randn(2, 30, 3)
    grads = []
    for contiguous in (False, True):
        leaf = wide.clone().requires_grad_()
        view = leaf.transpose(1, 2)
        chamfer_distance(view.contiguous() if contiguous else view, y)[0].backward()
        grads.append(leaf.grad)
    assert torch.equal(grads[0], grads[1])


@pytest.mark.parametrize("norm", [1, 2])
def test_gradients(norm: int) -> None:
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(2, 5, 3, generator=draw, dtype=torch.float64, requires_grad=True)
    y = torch.randn(2, 7, 3, generator=draw, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([5, 3])
    assert torch.autograd.gradcheck(
        lambda a, b: chamfer_distance(a, b, lengths, norm=norm)[0], (x, y)
    )


def test_bad_input(backend: str) -> None:
    x = torch.zeros(2, 4, 3)
    with pytest.raises(ValueError, match=r"x_lengths must be in \[0, 4\], the padded size, got 5"):
        chamfer_distance(x, x, torch.tensor([5, 1]))
    with pytest.raises(ValueError, match=r"y_lengths must be in \[0, 4\], the padded size, got -1"):
        chamfer_distance(x, x, None, torch.tensor([1, -1]))
    with pytest.raises(ValueError, match="weights must be non-negative"):
        chamfer_distance(x, x, weights=torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match="norm must be 1"):
        chamfer_distance(x, x, norm=3)
    with pytest.raises(ValueError, match="batch_reduction must be None when"):
        chamfer_distance(x, x, point_reduction=None)
    with pytest.raises(ValueError, match="normals"):
        chamfer_distance(x, x, x_normals=x, y_normals=x, point_reduction="max")
    with pytest.raises(ValueError, match="of batch size 2"):
        chamfer_distance(x, x[:1])


def test_bad_normals_and_weights(backend: str) -> None:
    x, broken = torch.rand(2, 4, 3), torch.rand(2, 4, 3)
    broken[1, 2, 0] = float("nan")
    for wrong in (x.double(), x.half(), x.long()):
        with pytest.raises(ValueError, match=r"x_normals must be torch\.float32 as x is, got"):
            chamfer_distance(x, x, x_normals=wrong, y_normals=x)
        with pytest.raises(ValueError, match=r"y_normals must be torch\.float32 as y is, got"):
            chamfer_distance(x, x, x_normals=x, y_normals=wrong)
    with pytest.raises(ValueError, match="x_normals must be finite, got 1 rows"):
        chamfer_distance(x, x, x_normals=broken, y_normals=x)
    with pytest.raises(ValueError, match="y_normals must be finite, got 1 rows"):
        chamfer_distance(x, x, x_normals=x, y_normals=broken, single_directional=True)
    short = torch.tensor([4, 2])  # behind which nothing is looked at
    _, loss = chamfer_distance(x, x, short, short, broken, broken)
    assert bool(loss.isfinite())
    for wrong in (float("inf"), float("nan"), -1.0):
        with pytest.raises(ValueError, match="weights must be non-negative and finite, got"):
            chamfer_distance(x, x, weights=torch.tensor([1.0, wrong]))
    with pytest.raises(ValueError, match="weights must be non-negative and finite, got"):
        chamfer_distance(x, x, weights=torch.tensor([1.0, 1e300], dtype=torch.float64))
    with pytest.raises(TypeError, match=r"weights must be floating or whole numbers, got torch\.c"):
        chamfer_distance(x, x, weights=torch.ones(2, dtype=torch.complex64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_normals_are_compared_in_float32(backend: str, dtype: torch.dtype) -> None:
    x, normals = torch.rand(1, 500, 3).to(dtype), torch.randn(1, 500, 3).to(dtype)
    back = normals.flip(1)
    found = chamfer_distance(x, x, None, None, normals, back, point_reduction="sum")[1]
    wide = x.float(), x.float(), None, None, normals.float(), back.float()
    assert torch.equal(found, chamfer_distance(*wide, point_reduction="sum")[1])
