"""What every installation must do, in any folder: import, layers forward and backward, no extra.

Run by path against an installed package, by the workflows and `test_packaging.py`.
"""

import torch

import sparse3d
import sparse3d.nn as spnn
from sparse3d.pointops import knn


def main() -> str:
    torch.manual_seed(0)
    sites = torch.nonzero(torch.rand(2, 8, 8, 8) < 0.2).int()
    x = sparse3d.SparseConvTensor(torch.randn(len(sites), 4), sites, [8, 8, 8], 2)
    net = spnn.SparseSequential(
        spnn.SubMConv3d(4, 8, 3), spnn.SparseBatchNorm(8), spnn.SparseReLU(),
        spnn.SparseConv3d(8, 8, 2, 2, indice_key="down"),
        spnn.SparseInverseConv3d(8, 3, 2, "down"),
    )  # fmt: skip
    out = net(x).features
    out.square().mean().backward()
    assert out.shape == (len(sites), 3)
    assert all(torch.isfinite(p.grad).all() and p.grad.any() for p in net.parameters())
    dense = torch.nn.functional.conv3d(
        x.dense(), net[0].weight.movedim(-1, 1), net[0].bias, padding=1
    )
    ours = spnn.SparseSequential(net[0])(x).dense()
    mask = spnn.SparseConvTensor(torch.ones(len(sites), 1), sites, [8, 8, 8], 2).dense()
    assert torch.allclose(ours, dense * mask, atol=1e-5)
    cloud = torch.randn(1, 50, 3)
    assert knn(cloud, cloud, 1)[1].flatten().tolist() == list(range(50))
    return f"sparse3d {sparse3d.__version__} with torch {torch.__version__}: all right"


if __name__ == "__main__":
    print(main())  # noqa: T201
