"""A narrow MinkUNet on the harness: inference and one training step equal the reference."""

import pytest
import torch
from metal_emu import fronts, installed

from sparse3d import SparseConvTensor, _registry
from sparse3d.models.minkunet import MinkUNet

WIDTHS = (8, 8, 16, 16, 24, 16, 16, 8, 8)
BLOCKS = (1, 1, 1, 1)


def scene(rows: int = 160) -> SparseConvTensor:
    """Two samples of voxels on a surface."""
    draw = torch.Generator().manual_seed(11)
    flat = torch.randint(0, 20, (4 * rows, 2), generator=draw)
    height = (flat.sum(1, keepdim=True) // 5) % 16
    cells = torch.unique(torch.cat([torch.arange(4 * rows)[:, None] % 2, height, flat], 1), dim=0)
    cells = cells[torch.randperm(len(cells), generator=draw)[:rows]].int().contiguous()
    features = torch.randn(len(cells), 4, generator=draw)
    return SparseConvTensor(features, cells, [32, 32, 32], 2)


def net() -> torch.nn.Module:
    torch.manual_seed(3)
    return MinkUNet(4, 5, WIDTHS, BLOCKS, BLOCKS)


def step(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Logits in eval mode, loss and gradients of one step in training mode."""
    x, model = scene(), net()
    x = x.replace_feature(x.features.to(dtype))
    model = model.to(dtype).eval()
    with torch.no_grad():
        logits = model(x)
    x, model = scene(), net().to(dtype).train()
    x = x.replace_feature(x.features.to(dtype))
    target = torch.arange(len(x.features)) % 5
    loss = torch.nn.functional.cross_entropy(model(x).float(), target)
    loss.backward()
    return logits, loss.detach(), [p.grad for p in model.parameters() if p.grad is not None]


def relative(ours: torch.Tensor, expected: torch.Tensor) -> float:
    scale = expected.float().abs().max().clamp(min=1e-6)
    return float((ours.float() - expected.float()).abs().max() / scale)


@pytest.mark.parametrize("front", fronts())
@pytest.mark.parametrize(
    ("dtype", "limit"), [(torch.float32, 1e-4), (torch.float16, 2e-2)], ids=str
)
def test_inference_and_one_training_step(front: str, dtype: torch.dtype, limit: float) -> None:
    with _registry.force("reference"):
        expected = step(dtype)
    with installed(front) as running, _registry.force("metal"), _registry.strict():
        ours = step(dtype)
    assert relative(ours[0], expected[0]) < limit
    assert relative(ours[1], expected[1]) < limit
    assert len(ours[2]) == len(expected[2])
    largest = max(float(g.float().abs().max()) for g in expected[2])
    for mine, theirs in zip(ours[2], expected[2], strict=True):
        assert float((mine.float() - theirs.float()).abs().max()) < limit * largest
    used = {t.kernel for t in running.log}
    assert {"sp_conv", "sp_conv_small", "sp_weight_grad", "sp_map_submanifold"} <= used
