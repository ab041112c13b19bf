"""What tests of tensors on an NVIDIA GPU share."""

from collections.abc import Iterator

import pytest
import torch

from sparse3d import _registry


@pytest.fixture
def gpu() -> Iterator[None]:
    """Skips where the backend cannot be used; what a kernel did wrong shows in its own test."""
    reason = _registry.load("cuda")
    if reason is not None:
        pytest.skip(reason)
    yield
    torch.cuda.synchronize()
