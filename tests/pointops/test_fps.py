from __future__ import annotations

import point_oracle as oracle
import pytest
import torch
from point_oracle import make_cloud

from sparse3d.pointops import furthest_point_sample
from sparse3d.pointops.fps import fps_sample, sample_dense


@pytest.mark.parametrize("size", [1, 2, 31, 257])
def test_equals_brute_force(backend: str, shape: str, size: int) -> None:
    cloud = make_cloud(shape, size)
    count = min(size, 64)
    assert furthest_point_sample(cloud[None], count)[0].tolist() == oracle.fps(cloud, count)


def test_larger_cloud_equals_the_reference(backend: str, shape: str) -> None:
    cloud = make_cloud(shape, 1500 if backend == "metal" else 6000)
    assert furthest_point_sample(cloud[None], 200, 5)[0].tolist() == oracle.fps(cloud, 200, 5)


def test_batches_are_independent(backend: str) -> None:
    clouds = torch.stack([make_cloud("uniform", 100, 1), make_cloud("clustered", 100, 2)])
    taken = furthest_point_sample(clouds, 30, 3)
    for row in range(2):
        assert taken[row].tolist() == oracle.fps(clouds[row], 30, 3)


def test_each_index_once_while_npoint_fits_then_zero_repeats(backend: str, shape: str) -> None:
    """Taking all N points returned some index again and again elsewhere."""
    cloud = make_cloud(shape, 200)
    taken = furthest_point_sample(cloud[None], 205)[0]
    assert sorted(taken[:200].tolist()) == list(range(200))
    assert taken[200:].tolist() == [0] * 5


def test_corners_of_a_cube(backend: str) -> None:
    corners = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 3)[None]
    taken = furthest_point_sample(corners, 8)[0].tolist()
    assert taken[:2] == [0, 7]
    assert sorted(taken) == list(range(8))


def test_ties_go_to_the_smaller_index(backend: str) -> None:
    cloud = torch.tensor([[[0.0, 0, 0], [1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]]])
    assert furthest_point_sample(cloud, 3)[0].tolist() == [0, 1, 2]


def test_coincident_points_of_the_peers_rule(backend: str) -> None:
    """With `stay` a taken point keeps distance 0, so the first of equal points comes again."""
    cloud = torch.zeros(1, 4, 3)
    assert sample_dense(cloud, 4, stay=True)[0].tolist() == [0, 0, 0, 0]
    assert sample_dense(cloud, 4)[0].tolist() == [0, 1, 2, 3]


def test_slots_decide_ties_as_a_thread_reduction_does(backend: str, shape: str) -> None:
    cloud = make_cloud(shape, 300)
    wanted = oracle.fps(cloud, 60, stay=True, slots=64)
    assert sample_dense(cloud[None], 60, stay=True, slots=64)[0].tolist() == wanted


@pytest.mark.parametrize("strategy", ["single", "multigroup"])
@pytest.mark.parametrize(("stay", "slots"), [(False, 0), (True, 64)])
def test_kernels_by_name_take_the_same_of_uneven_clouds(
    backend: str, shape: str, strategy: str, stay: bool, slots: int
) -> None:
    """One group a cloud, or several that meet between launches: two clouds of unequal size."""
    sizes, counts, starts = (2100, 90), (9, 12), (3, 5)
    parts = [make_cloud(shape, size, seed) for seed, size in enumerate(sizes)]
    wanted = [
        oracle.fps(part, count, start, stay=stay, slots=slots)
        for part, count, start in zip(parts, counts, starts, strict=True)
    ]
    clouds = torch.tensor([[0, 2100, 0, 9, 3, 0], [2100, 2190, 9, 21, 2105, 2100]])
    taken = fps_sample(torch.cat(parts), clouds, 21, stay, False, slots, strategy).tolist()
    assert [taken[:9], taken[9:]] == wanted


def test_points_near_the_origin_can_be_left_out(backend: str) -> None:
    near = 0.0316  # squared: 0.00099856, just inside
    cloud = torch.tensor([[[2.0, 0, 0], [near, 0, 0], [0.0317, 0, 0], [1, 0, 0]]])
    assert furthest_point_sample(cloud, 4, 0, True)[0].tolist() == [0, 2, 3, 0]
    assert furthest_point_sample(cloud, 4, 0, False)[0].tolist()[1] == 1
    assert furthest_point_sample(cloud, 2, 1, True)[0].tolist() == [1, 0]


@pytest.mark.parametrize(("dtype", "barred"), [(torch.float64, True), (torch.float32, False)])
def test_the_limit_near_the_origin_is_the_double(
    backend: str, dtype: torch.dtype, barred: bool
) -> None:
    """A squared norm of 1e-3 itself is too near; the float32 next to it is a little more."""
    if backend == "metal" and dtype == torch.float64:
        pytest.skip("no float64 on Metal")
    limit = torch.tensor(1e-3, dtype=dtype)
    small = torch.arange(1, 1000, dtype=dtype) * 1e-5
    large = (limit - small * small).sqrt()
    row = int((large * large + small * small == limit).nonzero()[0, 0])
    cloud = torch.zeros(1, 3, 3, dtype=dtype)
    cloud[0, 0, 0], cloud[0, 1, 0], cloud[0, 1, 1] = 2.0, large[row], small[row]
    assert furthest_point_sample(cloud, 2, 0, True)[0].tolist() == [0, 0 if barred else 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(backend: str, dtype: torch.dtype) -> None:
    if backend == "metal" and dtype == torch.float64:
        pytest.skip("no float64 on Metal")
    cloud = make_cloud("uniform", 150).to(dtype)
    taken = furthest_point_sample(cloud[None], 40)[0].tolist()
    if dtype != torch.float64:
        assert taken == oracle.fps(cloud, 40)
    else:
        assert len(set(taken)) == 40


def test_strides_do_not_matter(backend: str) -> None:
    wide = torch.randn(2, 3, 90)
    view = wide.transpose(1, 2)[:, 10:]
    assert torch.equal(
        furthest_point_sample(view, 20), furthest_point_sample(view.contiguous(), 20)
    )


def test_empty(backend: str) -> None:
    assert furthest_point_sample(torch.zeros(2, 5, 3), 0).shape == (2, 0)
    assert furthest_point_sample(torch.zeros(0, 5, 3), 4).shape == (0, 4)
    assert furthest_point_sample(torch.zeros(2, 5, 3), 0).dtype == torch.int64


def test_bad_input(backend: str) -> None:
    cloud = torch.zeros(1, 4, 3)
    with pytest.raises(ValueError, match="at least one point"):
        furthest_point_sample(cloud[:, :0], 1)
    with pytest.raises(ValueError, match=r"start_idx must be in \[0, 3\], got 4"):
        furthest_point_sample(cloud, 1, 4)
    with pytest.raises(ValueError, match="npoint must be >= 0, got -1"):
        furthest_point_sample(cloud, -1)
    with pytest.raises(ValueError, match="strategy must be one of"):
        furthest_point_sample(cloud, 1, strategy="fast")
    with pytest.raises(ValueError, match=r"xyz must be of shape \(B, N, 3\)"):
        furthest_point_sample(cloud[0], 1)
    with pytest.raises(TypeError, match="xyz must be float32"):
        furthest_point_sample(cloud.long(), 1)
    cloud[0, 2, 1] = float("nan")
    with pytest.raises(ValueError, match=r"xyz must be finite, got 1 rows.*row 2"):
        furthest_point_sample(cloud, 1)
    cloud[0, 2, 1] = float("-inf")
    with pytest.raises(ValueError, match="xyz must be finite"):
        furthest_point_sample(cloud, 1)
