"""What compat tests share."""

from __future__ import annotations

import pytest
from point_oracle import SHAPES


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    """One kind of cloud at a time."""
    return str(request.param)
