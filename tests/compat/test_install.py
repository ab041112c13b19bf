"""`install`: names in `sys.modules`, never over a real package, and away again."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import pickle
import sys
from collections.abc import Iterator

import pytest
import torch

from sparse3d import compat

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("spconv") is not None,
    reason="a real spconv is installed here, and stand-ins give way to it",
)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    compat.uninstall()


def test_imports_find_the_stand_in() -> None:
    made = compat.install("spconv")
    assert "spconv" in made
    import spconv
    import spconv.pytorch as sp
    from spconv.core import ConvAlgo
    from spconv.pytorch.utils import PointToVoxel
    from spconv.utils import VoxelGenerator

    assert spconv.pytorch.SubMConv3d is sp.SubMConv3d
    assert sp is sys.modules["sparse3d.compat.spconv.pytorch"]
    assert ConvAlgo.Native.value == 0
    assert PointToVoxel.__name__ in dir(sp.utils)
    assert VoxelGenerator is spconv.utils.VoxelGenerator
    assert importlib.import_module("spconv.pytorch.functional") is sp.functional


def test_versions_and_specs() -> None:
    compat.install("spconv")
    import spconv

    assert [int(part) for part in spconv.__version__.split(".")] == spconv.SPCONV_VERSION_NUMBERS
    assert importlib.metadata.version("spconv") == spconv.__version__
    assert importlib.util.find_spec("spconv") is not None
    assert importlib.util.find_spec("spconv.pytorch.conv") is not None
    assert importlib.util.find_spec("spconv.nothing") is None


def test_objects_pickle_with_and_without_the_stand_in() -> None:
    compat.install("spconv")
    import spconv.pytorch as sp

    layer = sp.SubMConv3d(2, 2, 3)
    kept = pickle.dumps(layer)
    compat.uninstall("spconv")
    twin = pickle.loads(kept)
    assert torch.equal(twin.weight, layer.weight)


def test_install_twice_and_uninstall() -> None:
    assert compat.install("spconv") == compat.install("spconv")
    compat.uninstall("spconv")
    assert not {"spconv", "cumm"} & set(sys.modules)
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("spconv")


def test_a_real_package_is_left_alone(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "spconv").mkdir()
    (tmp_path / "spconv" / "__init__.py").write_text("real = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert compat.install("spconv") == []  # nor what it brings along, which is its own
    assert "cumm" not in sys.modules
    import spconv

    assert spconv.real
    assert compat.install("spconv", force=True)[0] == "spconv"
    import spconv as forced

    assert forced.__name__ == "sparse3d.compat.spconv"


def test_minkowski_engine_puts_its_folder_at_the_end_of_the_path(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    compat.install("MinkowskiEngine")
    import MinkowskiEngine as ME
    from MinkowskiEngineBackend._C import RegionType
    from MinkowskiOps import MinkowskiLinear
    from MinkowskiTensorField import TensorField

    assert (MinkowskiLinear, TensorField) == (ME.MinkowskiLinear, ME.TensorField)
    assert RegionType is ME.RegionType
    own = importlib.import_module("utils.gradcheck")
    assert own is importlib.import_module("MinkowskiEngine.utils.gradcheck")
    assert importlib.import_module("utils") is ME.utils
    assert ME.utils.__spec__ is not None
    assert ME.utils.__spec__.name == "sparse3d.compat.minkowski.utils"
    compat.uninstall("MinkowskiEngine")
    for name in ("MinkowskiOps", "MinkowskiEngineBackend", "utils", "utils.gradcheck"):
        assert name not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("utils.gradcheck")
    (tmp_path / "utils.py").write_text("mine = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    compat.install("MinkowskiEngine")
    assert importlib.import_module("utils").mine
    del sys.modules["utils"]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"name must be one of \[.*'spconv'.*\], got 'numpy'"):
        compat.install("numpy")


def test_modules_of_spconv_1_are_importable() -> None:
    compat.install("spconv")
    spconv = importlib.import_module("spconv")
    from spconv.conv import SubMConv3d
    from spconv.functional import SparseConvFunction
    from spconv.modules import SparseModule

    assert SparseModule is spconv.SparseModule
    assert SubMConv3d is spconv.SubMConv3d
    SubMConv3d(1, 1, 3, use_hash=True)
    assert SparseConvFunction is spconv.functional.SparseConvFunction
    for name in ("conv", "functional", "identity", "modules", "ops", "pool", "spatial", "tables"):
        assert importlib.import_module(f"spconv.{name}") is getattr(spconv, name)
        assert importlib.util.find_spec(f"spconv.{name}") is not None
    compat.uninstall("spconv")
    assert not [name for name in sys.modules if name.partition(".")[0] == "spconv"]


def test_real_modules_of_minkowski_engines_bare_names_are_left_alone(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "MinkowskiOps.py").write_text("real = True\n")
    (tmp_path / "MinkowskiEngineBackend").mkdir()
    (tmp_path / "MinkowskiEngineBackend" / "__init__.py").write_text("")
    (tmp_path / "MinkowskiEngineBackend" / "_C.py").write_text("real = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    compat.install("MinkowskiEngine")
    assert importlib.import_module("MinkowskiOps").real
    assert importlib.import_module("MinkowskiEngineBackend._C").real
    assert importlib.import_module("MinkowskiUnion").MinkowskiUnion
    compat.uninstall("MinkowskiEngine")
    assert importlib.import_module("MinkowskiOps") is sys.modules["MinkowskiOps"]
    kept = sys.modules["MinkowskiOps"]
    compat.install("MinkowskiEngine")
    assert sys.modules["MinkowskiOps"] is kept
    compat.install("MinkowskiEngine", force=True)
    assert sys.modules["MinkowskiOps"].__name__ == "sparse3d.compat.minkowski.MinkowskiOps"
    assert not hasattr(importlib.import_module("MinkowskiEngineBackend._C"), "real")
