"""torch_geometric's own DGCNN and PointNet++ examples, as they are, on our operators.

Neither its wheels nor its source archives bring the examples, and copies of them do not belong
here: the test runs those of a checkout.

    python -m pytest -m nightly tests/compat/test_pyg_examples.py --pyg-examples CHECKOUT/examples
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from compat.test_pyg import ROOT, place_of

EXAMPLES = (
    "dgcnn_classification",
    "dgcnn_segmentation",
    "pointnet2_classification",
    "pointnet2_segmentation",
)


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["2.7", "2.8"])
@pytest.mark.parametrize("example", EXAMPLES)
def test_example(example: str, version: str, request: pytest.FixtureRequest) -> None:
    folder = request.config.getoption("--pyg-examples")
    if folder is None:
        pytest.skip("no --pyg-examples: the examples/ of a torch_geometric checkout")
    source = Path(folder).resolve() / f"{example}.py"
    assert source.is_file(), f"no {source.name} in {folder}"
    apart = place_of(version)
    here = Path(__file__).parent
    folders = [str(ROOT), str(here), *([str(apart)] if apart else [])]
    done = subprocess.run(
        [sys.executable, str(here / "pyg_prelude.py"), version, str(source)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    epochs = [line for line in done.stdout.splitlines() if line.startswith("Epoch")]
    scores = [float(re.findall(r"(?:Test|IoU)[^:]*: ([0-9.]+)", line)[-1]) for line in epochs]
    assert len(scores) == 2
    assert all(0 <= score <= 1 for score in scores)
