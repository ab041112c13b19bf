"""Fixtures that every test shares: where the shared data is, seeds, backends, poisoned memory."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton_interpreter

ROOT = Path(__file__).resolve().parent.parent
SEED = 20
DEFAULT_BACKENDS = ("reference", "cpu")
"""Metal, which takes minutes on the emulator, is asked for: `--backend metal`, as CI does."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend",
        action="append",
        choices=["reference", "cpu", "metal", "cuda"],
        help="run the contract tests on these backends only (repeatable)",
    )
    parser.addoption("--metal-front", choices=["clang", "gcc"], help="front end of tests/metal_emu")
    parser.addoption("--metal-seed", type=int, default=0, help="its first schedule")
    parser.addoption("--metal-schedules", type=int, default=1, help="schedules of a launch")
    parser.addoption("--pyg-examples", help="examples/ of a torch_geometric checkout, to be run")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--backend") or DEFAULT_BACKENDS
        metafunc.parametrize("backend", chosen, indirect=True, scope="session")


def _fits_the_harness(params: dict[str, Any]) -> bool:
    """Whether a Metal test is small enough to be emulated on every run; the others are nightly."""
    shape = params.get("shape")
    if isinstance(shape, str):  # point clouds: one full of ties, one of boxes far apart
        return shape in ("lattice", "clustered") and params.get("scale", 1.0) == 1.0
    return "examples" not in params


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.backends.mps.is_available():
        return
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if params.get("backend") != "metal":
            continue
        if not _fits_the_harness(params):
            item.add_marker(pytest.mark.nightly)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared data beside the repository, or where SPARSE3D_SHARED says; skips without it."""
    named = os.environ.get("SPARSE3D_SHARED")
    folder = Path(named) if named else ROOT.parent / "shared"
    if not (folder / "data").is_dir():
        pytest.skip(f"shared data: no folder {folder.name}/data (set SPARSE3D_SHARED)")
    return folder


@pytest.fixture(autouse=True)
def _seeds() -> None:
    torch.manual_seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002  (third parties draw from the global generator)


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> str:
    """A backend that works here; the test runs its kernels with ``_registry.force(backend)``.

    ``metal`` runs on CPU tensors through the harness of ``tests/metal_emu`` where there is no Mac,
    ``cuda`` through ``cuda_tensors``, which moves them to the GPU and back.
    """
    name: str = request.param
    if name == "reference":
        return name
    registry = pytest.importorskip("sparse3d._registry")
    if name == "metal" and importlib.util.find_spec("metal_emu") is not None:
        harness = importlib.import_module("metal_emu")
        enable = getattr(harness, "enable", None)
        if enable is not None:
            option = request.config.getoption
            wanted = ("--metal-front", "--metal-seed", "--metal-schedules")
            enable(*(option(name) for name in wanted))
    if name == "cuda" and triton_interpreter.is_interpreting():
        triton_interpreter.enable()
    reason = registry.load(name)
    if reason is not None:
        pytest.skip(f"{name}: {reason}")
    if name == "cuda":
        importlib.import_module("cuda_tensors").enable()
    return name


@pytest.fixture
def cpu_library() -> None:
    """Skip where the CPU library was not compiled."""
    reason = pytest.importorskip("sparse3d._registry").load("cpu")
    if reason is not None:
        pytest.skip(f"cpu: {reason}")


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill what ``torch.empty`` and its kin give with NaN or a huge integer.

    An output that a kernel forgets to write then shows, whatever the allocator had there before.
    """

    def fill(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type == "meta" or not tensor.numel():
            return tensor
        with torch.no_grad():
            if tensor.is_floating_point():
                return tensor.fill_(float("nan"))
            return tensor.fill_(True if tensor.dtype == torch.bool else 113)

    def wrap(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def made(*args: Any, **kwargs: Any) -> torch.Tensor:
            tensor = make(*args, **kwargs)
            return tensor if "out" in kwargs else fill(tensor)

        return made

    for owner, name in (
        (torch, "empty"),
        (torch, "empty_like"),
        (torch, "empty_strided"),
        (torch.Tensor, "new_empty"),
    ):
        monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """``torch.set_num_threads``, restored afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
