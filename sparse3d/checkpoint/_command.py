"""`sparse3d convert`."""

from __future__ import annotations

import sys
from pathlib import Path

from .._atomic import check_file, said
from ._layouts import LAYOUTS
from ._load import convert
from ._refusal import Refusal, say_which

__all__ = ["run"]


def run(source: Path, target: Path, layout: str, reverse_axes: bool) -> int:
    """Rewrite one checkpoint and print what became of its entries.

    Returns:
        0, or 2 after one line on stderr.
    """
    try:
        if layout not in ("auto", *LAYOUTS):
            raise ValueError(f"--layout must be 'auto' or one of {LAYOUTS}, got {layout!r}")
        if target.suffix not in (".safetensors", ".pth", ".pt"):
            raise ValueError(f"target must end in .safetensors, .pth or .pt, got {target}")
        check_file("target", target)
        print(convert(source, target, layout, reverse_axes=reverse_axes))
    except (ValueError, OSError) as error:
        line = said(error)
        if isinstance(error, Refusal) and error.layouts:
            line = f"{error.reason}; {say_which(error.layouts, '--layout {}')}"
        print(f"error: {line}", file=sys.stderr)
        return 2
    return 0
