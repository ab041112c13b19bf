from __future__ import annotations

import pytest
import torch

from sparse3d.pointops import gather, group, group_offsets


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_values(backend: str, dtype: torch.dtype, index_dtype: torch.dtype) -> None:
    if backend == "metal" and dtype == torch.float64:
        pytest.skip("no float64 on Metal")
    features = torch.randn(2, 4, 9).to(dtype)
    index = torch.randint(-1, 9, (2, 5, 3), dtype=index_dtype)
    out = group(features, index)
    assert out.shape == (2, 4, 5, 3)
    for b in range(2):
        for i in range(5):
            for j in range(3):
                at = int(index[b, i, j])
                wanted = features[b, :, at] if at >= 0 else torch.zeros(4, dtype=dtype)
                assert torch.equal(out[b, :, i, j], wanted)
    assert torch.equal(gather(features, index[..., 0]), out[..., 0])


def test_strides_do_not_matter(backend: str) -> None:
    features = torch.randn(2, 9, 4).transpose(1, 2)
    index = torch.randint(0, 9, (3, 5, 2)).transpose(0, 2)
    assert torch.equal(group(features, index), group(features.contiguous(), index.contiguous()))


def test_gradients() -> None:
    features = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    index = torch.randint(-1, 6, (2, 4, 5))
    assert torch.autograd.gradcheck(lambda f: group(f, index), (features,))
    assert torch.autograd.gradgradcheck(lambda f: group(f, index), (features,))


def test_padding_gives_and_takes_nothing(backend: str) -> None:
    features = torch.ones(1, 1, 3, requires_grad=True)
    out = gather(features, torch.tensor([[-1, 2, 2]]))
    out.backward(torch.tensor([[[100.0, 1.0, 2.0]]]))
    assert out.tolist() == [[[0.0, 1.0, 1.0]]]
    assert features.grad is not None
    assert features.grad.tolist() == [[[0.0, 0.0, 3.0]]]


def test_empty(backend: str) -> None:
    assert group(torch.zeros(2, 3, 4), torch.zeros(2, 0, 5).long()).shape == (2, 3, 0, 5)
    assert gather(torch.zeros(2, 3, 0), -torch.ones(2, 4).long()).tolist() == [[[0.0] * 4] * 3] * 2


def test_bad_input(backend: str) -> None:
    features = torch.zeros(1, 2, 4)
    with pytest.raises(ValueError, match=r"idx must be in \[-1, 4\), got 4"):
        gather(features, torch.tensor([[4]]))
    with pytest.raises(ValueError, match=r"idx must be in \[-1, 4\), got -2"):
        gather(features, torch.tensor([[-2]]))
    with pytest.raises(ValueError, match="idx must be of batch size 1"):
        gather(features, torch.zeros(2, 1).long())
    with pytest.raises(TypeError, match="idx must be int64 or int32"):
        gather(features, torch.zeros(1, 1))
    with pytest.raises(TypeError, match="features must be float32"):
        gather(features.long(), torch.zeros(1, 1).long())


def test_offsets_from_centres(backend: str) -> None:
    xyz = torch.rand(2, 9, 3, dtype=torch.float64, requires_grad=True)
    centres = torch.rand(2, 4, 3, dtype=torch.float64, requires_grad=True)
    index = torch.randint(0, 9, (2, 4, 5))
    out = group_offsets(xyz, centres, index)
    for b in range(2):
        wanted = xyz[b][index[b]] - centres[b][:, None]
        assert torch.equal(out[b], wanted.permute(2, 0, 1))
    assert torch.autograd.gradcheck(lambda p, c: group_offsets(p, c, index), (xyz, centres))
    with pytest.raises(ValueError, match="idx must be of 4 rows, one a centre, got 3"):
        group_offsets(xyz, centres, index[:, :3])
