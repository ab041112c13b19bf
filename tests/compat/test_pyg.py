"""torch_geometric on the stand-ins, each in a process of its own: it looks for packages on import.

2.7 runs on the torch_cluster stand-in. 2.8 calls pyg-lib's operators: its wheels are not on the
package index, so the recorded schemas are declared here as pyg-lib would, and ours registered.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

RUN_27 = """
import sparse3d.compat
names = ["torch_cluster", "torch_scatter"]
assert sparse3d.compat.install(*names) == names
import torch, torch_geometric
from torch_geometric.nn import (DynamicEdgeConv, MLP, PointNetConv, XConv, avg_pool_x, fps, graclus,
                                knn, knn_graph, knn_interpolate, nearest, radius, radius_graph,
                                voxel_grid, global_max_pool)
from torch_geometric.utils import dropout_path, scatter
assert torch_geometric.typing.WITH_TORCH_CLUSTER
"""

RUN_28 = """
import sys, types, torch
library = torch.library.Library("pyg", "DEF")
for schema in (
    "fps(Tensor src, Tensor ptr, float ratio, bool random_start) -> Tensor",
    "knn(Tensor x, Tensor y, Tensor? ptr_x, Tensor? ptr_y, int k, bool cosine, int num_workers)"
    " -> Tensor",
    "radius(Tensor x, Tensor y, Tensor? ptr_x, Tensor? ptr_y, float r, int max_num_neighbors,"
    " int num_workers, bool ignore_same_index=False) -> Tensor",
    "nearest(Tensor x, Tensor y, Tensor ptr_x, Tensor ptr_y) -> Tensor",
    "graclus_cluster(Tensor rowptr, Tensor col, Tensor? weight=None) -> Tensor",
    "grid_cluster(Tensor pos, Tensor size, Tensor? start=None, Tensor? end=None) -> Tensor",
    "random_walk(Tensor rowptr, Tensor col, Tensor seed, int walk_length, float p, float q)"
    " -> Tensor",
):
    library.define(schema)
names = ("fps", "knn", "radius", "nearest", "graclus_cluster", "grid_cluster")
pyg_lib = types.ModuleType("pyg_lib")
pyg_lib.ops = types.SimpleNamespace(**{name: getattr(torch.ops.pyg, name) for name in names})
def neighbor_sample(edge_time=None, edge_weight=None): ...
pyg_lib.sampler = types.SimpleNamespace(neighbor_sample=neighbor_sample)
pyg_lib.__version__ = "0.6.0"
sys.modules["pyg_lib"] = pyg_lib
from sparse3d.compat import pyg
done = pyg.register("CPU")
assert len(done) == 7 and pyg.register("CPU") == []
import torch_geometric
assert torch_geometric.typing.WITH_FPS and torch_geometric.typing.WITH_KNN
from torch_geometric.nn import (DynamicEdgeConv, MLP, PointNetConv, XConv, avg_pool_x, fps, graclus,
                                knn, knn_graph, knn_interpolate, nearest, radius, radius_graph,
                                voxel_grid, global_max_pool)
from torch_geometric.utils import dropout_path, scatter
"""

# The operators against brute force, then the layers of its DGCNN and PointNet++ examples.
CHECK = """
torch.manual_seed(0)
x = torch.rand(60, 3)
batch = torch.tensor([0] * 40 + [1] * 20)
far = batch[:, None] != batch[None]
table = torch.cdist(x.double(), x.double()).masked_fill(far, float("inf"))
row, col = knn(x, x, 4, batch, batch)
assert torch.equal(col.view(60, 4), table.argsort(dim=1)[:, :4])
source, target = knn_graph(x, 3, batch)
assert torch.equal(source.view(60, 3), table.argsort(dim=1)[:, 1:4])
row, col = radius(x, x, 0.3, batch, batch, max_num_neighbors=60)
assert torch.equal(torch.stack([row, col]), (table < 0.3).nonzero().t())
source, target = radius_graph(x, 0.3, batch, max_num_neighbors=60)
assert len(source) == int((table < 0.3).sum()) - 60
taken = fps(x, batch, ratio=0.25, random_start=False)
assert len(taken) == 15 and taken[0] == 0 and taken[10] == 40
assert torch.equal(nearest(x, x[taken], batch, batch[taken])[taken], torch.arange(15))
assert len(voxel_grid(x, 0.5, batch).unique()) <= 16
edges = knn_graph(x, 3, batch)
edges = torch.cat([edges, edges.flip(0)], 1)
assert graclus(edges).shape == (60,)
assert dropout_path(edges, p=0.3)[0].shape[0] == 2
assert torch.allclose(scatter(x, batch, reduce="max")[1], x[40:].amax(0))

class SA(torch.nn.Module):
    def __init__(self, ratio, r, nn):
        super().__init__()
        self.ratio, self.r, self.conv = ratio, r, PointNetConv(nn, add_self_loops=False)
    def forward(self, x, pos, batch):
        idx = fps(pos, batch, ratio=self.ratio)
        row, col = radius(pos, pos[idx], self.r, batch, batch[idx], max_num_neighbors=16)
        x_dst = None if x is None else x[idx]
        x = self.conv((x, x_dst), (pos, pos[idx]), torch.stack([col, row]))
        return x, pos[idx], batch[idx]

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sa = SA(0.5, 0.4, MLP([3, 16, 16]))
        self.edge = DynamicEdgeConv(MLP([32, 16]), k=4)
        self.head = torch.nn.Linear(16, 5)
    def forward(self, pos, batch):
        x, coarse, ids = self.sa(None, pos, batch)
        x = self.edge(x, ids)
        up = knn_interpolate(x, coarse, pos, ids, batch, k=3)
        return self.head(global_max_pool(up, batch))

net = Net()
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
first = last = None
for step in range(15):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x, batch), torch.tensor([1, 3]))
    loss.backward()
    optimizer.step()
    first = float(loss.detach()) if first is None else first
    last = float(loss.detach())
assert last < 0.5 * first, (first, last)
print("ok", torch_geometric.__version__)
"""


def place_of(version: str) -> Path | None:
    """The folder that holds this version of torch_geometric alone, or None if it is installed."""
    apart = Path(sys.prefix) / f"pyg-{version}"
    if apart.is_dir():
        return apart
    try:
        installed = importlib.metadata.version("torch_geometric")
    except importlib.metadata.PackageNotFoundError:
        installed = "none"
    if not installed.startswith(f"{version}."):
        pytest.skip(f"torch_geometric {version} is not here (found {installed})")
    return None


@pytest.mark.slow
@pytest.mark.parametrize(("version", "start"), [("2.7", RUN_27), ("2.8", RUN_28)])
def test_torch_geometric(version: str, start: str) -> None:
    apart = place_of(version)
    folders = [str(ROOT), *([str(apart)] if apart else []), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", start + CHECK],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith(f"ok {version}.")
