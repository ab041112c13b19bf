from __future__ import annotations

import numpy as np
import point_oracle as oracle
import pytest
import torch
from point_oracle import make_cloud

from sparse3d.pointops import inverse_distance_weights, three_interpolate, three_nn


def test_three_nn_equals_brute_force(backend: str, shape: str) -> None:
    unknown, known = make_cloud(shape, 200, 1), make_cloud(shape, 90, 2)
    distance, index = three_nn(unknown[None], known[None])
    wanted = oracle.knn(unknown, known, 3)
    assert index.dtype == torch.int32
    assert np.array_equal(index[0].numpy(), wanted)
    kept = np.take_along_axis(oracle.distances32(unknown, known), wanted, 1)
    assert np.array_equal(distance[0].numpy(), np.sqrt(kept))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_three_interpolate(backend: str, dtype: torch.dtype) -> None:
    features = torch.randn(2, 5, 11).to(dtype)
    index = torch.randint(0, 11, (2, 7, 3), dtype=torch.int32)
    weight = torch.rand(2, 7, 3)
    out = three_interpolate(features, index, weight)
    wide, rows = features.float().numpy(), index.numpy()
    for b in range(2):
        terms = [wide[b][:, rows[b, :, j]] * weight[b, :, j].numpy() for j in range(3)]
        wanted = torch.from_numpy((terms[0] + terms[1]) + terms[2]).to(dtype)
        assert torch.equal(out[b], wanted)


def test_gradients() -> None:
    features = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    index = torch.randint(0, 6, (2, 9, 3))
    weight = torch.rand(2, 9, 3, dtype=torch.float64, requires_grad=True)

    def run(f: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return three_interpolate(f, index, w)

    assert torch.autograd.gradcheck(run, (features, weight))
    assert torch.autograd.gradgradcheck(run, (features, weight))


def test_half_gradient_keeps_its_dtype(backend: str) -> None:
    features = torch.randn(1, 2, 4, dtype=torch.float16, requires_grad=True)
    three_interpolate(
        features, torch.zeros(1, 3, 3, dtype=torch.int64), torch.ones(1, 3, 3)
    ).sum().backward()
    assert features.grad is not None
    assert features.grad.tolist() == [[[9.0, 0, 0, 0]] * 2]


def test_bad_input(backend: str) -> None:
    cloud = torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match="known must be at least 3 points a cloud, got 2"):
        three_nn(cloud, cloud)
    features, index, weight = torch.zeros(1, 2, 4), torch.zeros(1, 5, 3).long(), torch.ones(1, 5, 3)
    with pytest.raises(ValueError, match=r"indices must be in \[0, 4\), got 4"):
        three_interpolate(features, index + 4, weight)
    with pytest.raises(ValueError, match=r"indices must be in \[0, 4\), got -1"):
        three_interpolate(features, index - 1, weight)
    with pytest.raises(ValueError, match="weights must be of shape"):
        three_interpolate(features, index, weight[:, :4])
    with pytest.raises(TypeError, match="indices must be int64 or int32"):
        three_interpolate(features, weight, weight)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        with pytest.raises(
            ValueError, match=r"weights must be float32 or lower .* got torch\.float64"
        ):
            three_interpolate(features.to(dtype), index, weight.double())
        with pytest.raises(ValueError, match="weights must be float64 as features is, got"):
            three_interpolate(features.double(), index, weight.to(dtype))
        assert three_interpolate(features.to(dtype), index, weight).dtype == dtype
    assert three_nn(torch.zeros(1, 0, 3), cloud)[0].shape == (1, 0, 3)


def test_fewer_than_three_known_points_can_be_padded(backend: str) -> None:
    unknown, known = torch.rand(2, 5, 3), torch.rand(2, 2, 3)
    distance, index = three_nn(unknown, known, pad=True)
    assert np.array_equal(index[0, :, :2].numpy(), oracle.knn(unknown[0], known[0], 2))
    assert not index[..., 2].any()
    assert (distance[..., 2] == float("inf")).all()
    assert not three_nn(unknown, known[:, :1], pad=True)[1].any()
    assert three_nn(unknown[:, :0], known, pad=True)[1].shape == (2, 0, 3)
    assert torch.equal(three_nn(unknown, unknown, pad=True)[1], three_nn(unknown, unknown)[1])


def test_inverse_distance_weights(backend: str) -> None:
    distance = torch.tensor([[[1.0, 2.0, 4.0], [0.0, 1.0, 1.0], [3.0, 1.0, float("inf")]]])
    weight = inverse_distance_weights(distance)
    assert torch.allclose(weight[0, 0], torch.tensor([4.0, 2.0, 1.0]) / 7)
    assert torch.allclose(weight[0, 1], torch.tensor([1.0, 0.0, 0.0]), atol=1e-7)
    assert torch.allclose(weight[0, 2], torch.tensor([0.25, 0.75, 0.0]))
    apart = (torch.rand(1, 4, 3, dtype=torch.float64) + 0.5).requires_grad_()
    assert torch.autograd.gradcheck(inverse_distance_weights, (apart,))
