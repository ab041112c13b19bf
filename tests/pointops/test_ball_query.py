from __future__ import annotations

import numpy as np
import point_oracle as oracle
import pytest
import torch
from point_oracle import make_cloud

from sparse3d.pointops import ball_query, flat
from sparse3d.pointops._clouds import dense
from sparse3d.pointops.ball_query import search


def _check(query: torch.Tensor, reference: torch.Tensor, radius: float, k: int) -> None:
    distance, index = ball_query(query[None], reference[None], radius, k)
    wanted = oracle.ball(query, reference, radius, k)
    assert np.array_equal(index[0].numpy(), wanted)
    table = oracle.distances32(query, reference)
    if table.shape[1]:
        kept = np.take_along_axis(table, np.maximum(wanted, 0), 1)
        assert np.array_equal(distance[0].numpy(), np.where(wanted >= 0, kept, np.float32(0)))


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0, 1e4])
@pytest.mark.parametrize("k", [1, 5, 32])
def test_equals_brute_force(backend: str, shape: str, scale: float, k: int) -> None:
    reference = make_cloud(shape, 900, 2)
    query = torch.cat([make_cloud(shape, 60, 1), reference[:20]])
    _check(query, reference, oracle.RADII[shape] * scale, k)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 31, 32, 33, 65, 257])
def test_sizes_around_blocks(backend: str, size: int) -> None:
    _check(make_cloud("lattice", 9, 1), make_cloud("lattice", size, 2), 2.5, size + 3)


def test_kept_points_are_the_first_not_the_nearest(backend: str) -> None:
    """Six points in range at falling distance by index, two kept: the two of lowest index."""
    reference = torch.tensor([[[float(d), 0, 0] for d in (6, 5, 4, 3, 2, 1)]])
    _, index = ball_query(torch.zeros(1, 1, 3), reference, 10.0, 2)
    assert index[0, 0].tolist() == [0, 1]


def test_a_query_without_hits_is_all_padding(backend: str) -> None:
    distance, index = ball_query(
        torch.full((1, 1, 3), 100.0), make_cloud("uniform", 50)[None], 0.2, 4
    )
    assert index.tolist() == [[[-1] * 4]]
    assert distance.tolist() == [[[0.0] * 4]]


def test_radius_is_strict_and_squared_in_float32(backend: str) -> None:
    """fl32(fl32(0.1)^2) = 0.010000000708 lies above fl32(0.1 * 0.1) = 0.0099999998."""
    square = np.float32(0.1) * np.float32(0.1)
    assert square > np.float32(0.1 * 0.1)
    reference = torch.tensor([[[0.1, 0.0, 0.0]]])  # its float32 square is exactly `square`
    assert ball_query(torch.zeros(1, 1, 3), reference, 0.1, 1)[1].item() == -1
    below = torch.tensor([[[float(np.nextafter(np.float32(0.1), np.float32(0))), 0.0, 0.0]]])
    assert ball_query(torch.zeros(1, 1, 3), below, 0.1, 1)[1].item() == 0
    exact = torch.tensor([[[1.0, 0.0, 0.0]]])
    assert ball_query(torch.zeros(1, 1, 3), exact, 1.0, 1)[1].item() == -1


def test_the_radius_is_squared_in_float32(backend: str) -> None:
    """The point lies between fl32(r * r) of the double product and fl32(fl32(r)^2)."""
    point = torch.tensor([[[0.09999999403953552, 2.160400981665589e-05, 0.0]]])
    assert ball_query(torch.zeros(1, 1, 3), point, 0.1, 1)[1].item() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_are_widened_exactly(backend: str, dtype: torch.dtype) -> None:
    cloud = make_cloud("uniform", 400).to(dtype)
    distance, index = ball_query(cloud[None, :50], cloud[None], 0.4, 12)
    assert distance.dtype == torch.float32
    assert np.array_equal(index[0].numpy(), oracle.ball(cloud[:50], cloud, 0.4, 12))


def test_strides_do_not_matter(backend: str) -> None:
    wide = torch.randn(2, 3, 120)
    view, shifted = wide.transpose(1, 2), wide.transpose(1, 2)[:, 7:, :]
    pairs = zip(
        ball_query(view, shifted, 1.0, 4),
        ball_query(view.contiguous(), shifted.contiguous(), 1.0, 4),
        strict=False,
    )
    assert all(torch.equal(one, two) for one, two in pairs)


def test_padded_clouds_and_skipping_the_same_row(backend: str) -> None:
    cloud = make_cloud("lattice", 40, 2)
    clouds = dense(2, 20, 20, torch.tensor([20, 3]), torch.tensor([20, 11]))
    _, index = search(cloud, cloud, clouds, 2.0, 30)
    assert np.array_equal(index[:20].numpy(), oracle.ball(cloud[:20], cloud[:20], 2**0.5, 30))
    assert np.array_equal(index[20:23].numpy(), oracle.ball(cloud[20:23], cloud[20:31], 2**0.5, 30))
    assert (index[23:] == -1).all()
    _, others = search(cloud, cloud, clouds, 2.0, 30, True)
    for row in range(20):
        kept = [i for i in index[row].tolist() if i >= 0 and i != row]
        assert [i for i in others[row].tolist() if i >= 0] == kept


def test_gradients() -> None:
    draw = torch.Generator().manual_seed(3)
    query = torch.randn(1, 5, 3, generator=draw, dtype=torch.float64, requires_grad=True)
    reference = torch.randn(1, 9, 3, generator=draw, dtype=torch.float64, requires_grad=True)

    def distances(q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        return ball_query(q, p, 1.5, 6)[0]

    assert (ball_query(query, reference, 1.5, 6)[1] == -1).any()
    assert torch.autograd.gradcheck(distances, (query, reference))
    assert torch.autograd.gradgradcheck(distances, (query, reference))


def test_padding_carries_no_gradient(backend: str) -> None:
    query = torch.zeros(1, 1, 3, requires_grad=True)
    reference = torch.tensor([[[0.5, 0.0, 0.0], [9.0, 0.0, 0.0]]], requires_grad=True)
    distance, _ = ball_query(query, reference, 1.0, 3)
    distance.sum().backward()
    assert reference.grad is not None
    assert query.grad is not None
    assert reference.grad.tolist() == [[[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]
    assert query.grad.tolist() == [[[-1.0, 0.0, 0.0]]]


def test_empty(backend: str) -> None:
    assert ball_query(torch.zeros(2, 0, 3), torch.zeros(2, 4, 3), 1.0, 3)[1].shape == (2, 0, 3)
    assert ball_query(torch.zeros(0, 2, 3), torch.zeros(0, 0, 3), 1.0, 3)[1].shape == (0, 2, 3)


@pytest.mark.parametrize(
    "radius", [0.0, -1.0, float("nan"), float("inf"), 1e-20, 1e-23, 1e25, "big"]
)
def test_bad_radius(backend: str, radius: float) -> None:
    cloud = torch.zeros(1, 4, 3)
    with pytest.raises((TypeError, ValueError), match="radius must be"):
        ball_query(cloud, cloud, radius, 2)


def test_the_square_of_a_float64_radius(backend: str) -> None:
    if backend == "metal":
        pytest.skip("no float64 on Metal")
    cloud = torch.zeros(1, 2, 3, dtype=torch.float64)
    for radius in (1e-170, 1e160):
        with pytest.raises(ValueError, match="radius must be such that its square fits float64"):
            ball_query(cloud, cloud, radius, 2)
    assert ball_query(cloud, cloud, 1e-150, 2)[1].tolist() == [[[0, 1], [0, 1]]]


def test_bad_input(backend: str) -> None:
    cloud = torch.zeros(1, 4, 3)
    with pytest.raises(ValueError, match="K must be >= 0, got -1"):
        ball_query(cloud, cloud, 1.0, -1)
    with pytest.raises(ValueError, match="ref must be of shape"):
        ball_query(cloud, torch.zeros(1, 4, 2), 1.0, 2)
    broken = cloud.clone()
    broken[0, 3, 2] = float("nan")
    with pytest.raises(ValueError, match="ref must be finite"):
        ball_query(cloud, broken, 1.0, 1)


def test_repeating_the_first_hit(backend: str, shape: str) -> None:
    cloud = make_cloud(shape, 120)
    query = torch.cat([cloud[:20], torch.full((1, 3), 1e4)])
    radius = oracle.RADII[shape]
    plain = ball_query(query[None], cloud[None], radius, 9)
    distance, index = ball_query(query[None], cloud[None], radius, 9, repeat_first=True)
    wanted = oracle.ball(query, cloud, radius, 9)
    wanted = np.where(wanted < 0, wanted[:, :1], wanted)
    assert np.array_equal(index[0].numpy(), wanted.clip(0))
    table = np.take_along_axis(oracle.distances32(query, cloud), wanted.clip(0), 1)
    assert np.array_equal(distance[0, :20].numpy(), table[:20])
    assert not index[0, 20].any()  # no hit: index 0 at distance 0
    assert not distance[0, 20].any()
    assert torch.equal(torch.where(plain[1] < 0, -1, index), plain[1])


def test_gradient_of_the_repeated_hit() -> None:
    query = torch.rand(1, 3, 3, dtype=torch.float64, requires_grad=True)
    ref = torch.rand(1, 6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda q, r: ball_query(q, r, 0.6, 5, repeat_first=True)[0], (query, ref)
    )


def test_a_radius_of_numpy(backend: str) -> None:
    cloud = torch.rand(1, 40, 3)
    wanted = ball_query(cloud, cloud, 0.5, 4)
    for radius in (np.float32(0.5), np.float64(0.5), torch.tensor(0.5)):
        assert torch.equal(ball_query(cloud, cloud, radius, 4)[1], wanted[1])
        assert torch.equal(
            flat.radius(cloud[0], cloud[0], radius), flat.radius(cloud[0], cloud[0], 0.5)
        )
    with pytest.raises(TypeError, match="radius must be a number"):
        ball_query(cloud, cloud, np.bool_(True), 4)
