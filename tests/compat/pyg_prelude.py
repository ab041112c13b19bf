"""What surrounds an example of torch_geometric: our operators, made-up data, an end.

    python pyg_prelude.py VERSION EXAMPLE

The example is run as it is. Its downloads are replaced by shapes drawn here, its loaders stay in
this process, and the run ends after the second epoch that it prints.
"""

from __future__ import annotations

import builtins
import importlib.util
import runpy
import sys
import types
from typing import Any

import torch

EPOCHS = 2


def cloud(kind: int, points: int, draw: torch.Generator) -> torch.Tensor:
    """A sphere, cube or cylinder."""
    ball = torch.nn.functional.normalize(torch.randn(points, 3, generator=draw), dim=1)
    if kind % 3 == 1:
        return ball / ball.abs().amax(1, keepdim=True)
    if kind % 3 == 2:
        return torch.cat([torch.nn.functional.normalize(ball[:, :2], dim=1), 2 * ball[:, 2:]], 1)
    return ball


def install(version: str) -> None:
    if version == "2.7":
        import sparse3d.compat

        names = ["torch_cluster", "torch_scatter"]
        assert sparse3d.compat.install(*names) == names
    else:
        from test_pyg import RUN_28

        exec(RUN_28, {})


def data_sets() -> dict[str, type]:
    from torch_geometric.data import Data, InMemoryDataset

    class Made(InMemoryDataset):
        """What both data sets share: the example's own transforms over made-up items."""

        def fill(self, items: list[Any], pre_transform: Any) -> None:
            items = items if pre_transform is None else [pre_transform(item) for item in items]
            self.data, self.slices = self.collate(items)

    class ModelNet(Made):
        def __init__(
            self,
            root: str,
            name: str = "10",
            train: bool = True,
            transform: Any = None,
            pre_transform: Any = None,
            **_: Any,
        ) -> None:
            super().__init__(None, transform)
            draw = torch.Generator().manual_seed(int(train))
            items = []
            for label in range(10):
                for _ in range(4 if train else 1):
                    position = cloud(label, 90, draw) * torch.rand(3, generator=draw)
                    face = torch.randint(90, (3, 200), generator=draw)
                    items.append(Data(pos=position, face=face, y=torch.tensor([label])))
            self.fill(items, pre_transform)

    class ShapeNet(Made):
        def __init__(
            self,
            root: str,
            categories: Any = None,
            include_normals: bool = True,
            split: str = "trainval",
            transform: Any = None,
            pre_transform: Any = None,
            **_: Any,
        ) -> None:
            super().__init__(None, transform)
            draw = torch.Generator().manual_seed(len(split))
            items = []
            for item in range(24 if split == "trainval" else 6):
                position = cloud(item, 400, draw)
                part = (position[:, 2] > 0).long() + 2 * (position[:, 0] > 0.5).long()
                normal = torch.nn.functional.normalize(position, dim=1)
                labels = {"y": part, "category": torch.tensor([0])}
                items.append(Data(x=normal, pos=position, **labels))
            self.fill(items, pre_transform)

        num_classes = 4
        y_mask = torch.ones(16, 4, dtype=torch.bool)

    return {"ModelNet": ModelNet, "ShapeNet": ShapeNet}


def jaccard_index(predicted: torch.Tensor, target: torch.Tensor, *_: Any, **__: Any) -> Any:
    """torchmetrics' mean over the classes that occur."""
    scores = []
    for label in torch.cat([predicted, target]).unique():
        a, b = predicted == label, target == label
        scores.append((a & b).sum() / (a | b).sum())
    return torch.stack(scores).mean()


def main() -> None:
    version, example = sys.argv[1:]
    install(version)
    import torch_geometric.datasets
    import torch_geometric.loader

    for name, made in data_sets().items():
        setattr(torch_geometric.datasets, name, made)
    loader = torch_geometric.loader.DataLoader

    def in_process(*args: Any, **kwargs: Any) -> Any:
        return loader(*args, **{**kwargs, "num_workers": 0})

    torch_geometric.loader.DataLoader = in_process
    if importlib.util.find_spec("torchmetrics") is None:
        functional = types.ModuleType("torchmetrics.functional")
        functional.jaccard_index = jaccard_index  # type: ignore[attr-defined]
        sys.modules["torchmetrics"] = types.ModuleType("torchmetrics")
        sys.modules["torchmetrics.functional"] = functional
    printed, say = 0, builtins.print

    def show(*args: Any, **kwargs: Any) -> None:
        nonlocal printed
        say(*args, **kwargs, flush=True)
        printed += str(args[0]).startswith("Epoch")
        if printed == EPOCHS:
            raise SystemExit(0)

    builtins.print = show
    torch.manual_seed(0)
    sys.path.insert(0, example.rpartition("/")[0])
    runpy.run_path(example, run_name="__main__")
    raise SystemExit("the example ended before its second epoch")


if __name__ == "__main__":
    main()
