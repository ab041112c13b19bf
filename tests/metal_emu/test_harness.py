"""The seam: the backend refuses to load without a device, loads under the emulator, and goes away
again."""

import pytest
import torch

from metal_emu import fronts, installed, uninstalled
from sparse3d import _registry
from sparse3d.ops.coordinates import build_table


def test_backend_is_unavailable_without_a_device():
    if torch.backends.mps.is_available():
        pytest.skip("this machine has a Metal device")
    with uninstalled():
        assert "mps" in _registry.load("metal")
        with pytest.raises(_registry.BackendUnavailable), _registry.force("metal"):
            pass


@pytest.mark.parametrize("front", fronts())
def test_installed_emulator_is_the_backend(front):
    coords = torch.tensor([[0, 1, 2, 3], [0, 4, 5, 6]], dtype=torch.int32)
    with installed(front) as session, _registry.force("metal"), _registry.strict():
        table = build_table(coords)
        assert table.dtype == torch.int32
        assert len(session.launches("sp_table_insert")) == 1
