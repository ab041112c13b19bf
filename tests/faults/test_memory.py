"""Too little memory: an error that says so, memory that comes back, and work that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from faults.commands import run
from torch.utils.data import DataLoader, Dataset

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, _registry, collate

HEAD = """
    import gc, resource, sys
    import torch
    import sparse3d.nn as spnn
    from sparse3d import SparseConvTensor, _registry, pointops, quantize, voxelize

    torch.set_num_threads(int(sys.argv[2]))
    place = _registry.force(sys.argv[1])
    place.__enter__()

    def status(field):
        for line in open("/proc/self/status"):
            if line.startswith(field):
                return int(line.split()[1]) * 1024

    def limit(extra):
        resource.setrlimit(resource.RLIMIT_AS, (status("VmSize:") + extra, -1))

    def scene(side, channels):
        axes = torch.meshgrid(*[torch.arange(side, dtype=torch.int32)] * 3, indexing="ij")
        sites = torch.stack([torch.zeros_like(axes[0]), *axes], -1).reshape(-1, 4).contiguous()
        return SparseConvTensor(torch.ones(len(sites), channels), sites, [side] * 3, 1)

    def refused(work):
        try:
            work()
        except (MemoryError, RuntimeError) as error:
            text = str(error)
            assert "memory" in text.lower(), text
            return text.splitlines()[0]
        raise AssertionError("enough memory")
"""

LAYERS = (
    HEAD
    + """
    MB = 2**20
    x = scene(40, 8)
    small = scene(6, 8)
    work = {
        "conv": lambda: spnn.SubMConv3d(8, 2048, 3)(x),
        "map": lambda: spnn.SparseConv3d(8, 1, 21, padding=10)(x),
        "pool": lambda: spnn.SparseMaxPool3d(21, 1, 10)(x),
        "dense": lambda: SparseConvTensor(
            torch.ones(1, 8), torch.zeros(1, 4, dtype=torch.int32), [1024] * 3, 1
        ).dense(),
        "transposed": lambda: spnn.SparseConvTranspose3d(8, 8, 9, 9)(x),
        "gradient": lambda: spnn.SubMConv3d(8, 1200, 3, bias=False)(x).features.sum().backward(),
        "knn": lambda: pointops.knn(torch.rand(1, 10**6, 3), torch.rand(1, 2000, 3), 1000),
    }
    layer = spnn.SubMConv3d(8, 8, 3)
    wanted = layer(small).features.detach()
    layer(x)
    for name, call in work.items():
        gc.collect()
        before = status("VmRSS:")
        limit(150 * MB)
        text = refused(call)
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        gc.collect()
        grown = status("VmRSS:") - before
        assert grown < 40 * MB, (name, grown)
        assert torch.equal(layer(small).features, wanted), name
        print(name, grown // MB, text[:90])
"""
)


@pytest.mark.parametrize(("name", "threads"), [("reference", 1), ("cpu", 1), ("cpu", 3)])
def test_operators_refuse_and_go_on(name: str, threads: int) -> None:
    if name != "reference" and _registry.load(name) is not None:
        pytest.skip("no cpu library")
    status, out, err = run(LAYERS, name, threads, timeout=170)
    assert status == 0, err
    assert len(out.splitlines()) == 7, out


COMMAND = """
    import resource, sys
    import torch, sparse3d.data.run
    from sparse3d._entry import main
    torch.set_num_threads(1)
    for line in open("/proc/self/status"):
        if line.startswith("VmSize:"):
            now = int(line.split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (now + int(sys.argv.pop(1)), -1))
    sys.exit(main())
"""


def test_segment_says_what_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    pytest.importorskip("matplotlib")
    pytest.importorskip("yaml")
    from faults.commands import names

    from sparse3d.data import simulate, write_scan

    write_scan(tmp_path / "a.bin", simulate(5).points)
    out = tmp_path / "out"
    args = ("segment", tmp_path / "a.bin", "--out", out, "--device", "cpu")
    status, _, err = run(COMMAND, 60 * 2**20, *args)
    assert status == 2, err
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert "memory" in err
    assert names(out) == []


class Scenes(Dataset[SparseConvTensor]):
    """Samples; one of them takes its worker down."""

    def __init__(self, fatal: int | None) -> None:
        self.fatal = fatal

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> SparseConvTensor:
        import os
        import signal

        if index == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        cells = torch.arange(20) + 20 * index
        sites = torch.stack([cells * 0, cells // 100, cells // 10 % 10, cells % 10], 1).int()
        return SparseConvTensor(torch.ones(20, 2), sites, [10, 10, 10], 1)


@pytest.mark.filterwarnings("ignore:This process")
def test_a_worker_that_dies_is_named_and_the_next_epoch_runs() -> None:
    def epoch(fatal: int | None) -> list[torch.Tensor]:
        loader = DataLoader(
            Scenes(fatal), batch_size=2, num_workers=2, collate_fn=collate, timeout=60,
            multiprocessing_context="fork",
        )  # fmt: skip
        layer = spnn.SubMConv3d(2, 2, 3, bias=False)
        layer.weight.data.fill_(1)
        return [layer(batch).features.detach() for batch in loader]

    wanted = epoch(None)
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid.*(killed|exited)"):
        epoch(5)
    for left, right in zip(epoch(None), wanted, strict=True):
        assert torch.equal(left, right)
