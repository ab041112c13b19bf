"""Which entry of a checkpoint is which of a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from ._files import State


def bare(name: str) -> str:
    """A name without wrappers: `module.`, `.bn.`, `.linear.`, `kernel`."""
    while name.startswith("module."):
        name = name.removeprefix("module.")
    name = re.sub(r"(^|\.)(?:bn|linear)\.(?=[a-z_]+$)", r"\1", name)
    return re.sub(r"(^|\.)kernels?$", r"\1weight", name)


_MMDET_BLOCK = {"conv1": "net.0", "norm1": "net.1", "bn1": "net.1"} | {
    "conv2": "net.3",
    "norm2": "net.4",
    "bn2": "net.4",
}


def _mmdet3d(name: str) -> str:
    """mmdetection3d's MinkUNet (any of its backends) as `sparse3d.models.MinkUNet`."""
    name = re.sub(r"\.downsample\.net\.", ".downsample.", name)
    stem = re.match(r"backbone\.conv_input\.(\d)\.(?:net\.)?(\d)\.(.+)", name)
    if stem:
        return f"stem.{3 * int(stem[1]) + int(stem[2])}.{stem[3]}"
    name = name.replace("decode_head.conv_seg.", "classifier.0.")
    part = re.match(r"backbone\.(encoder|decoder)\.(\d)\.(.+)", name)
    if not part:
        return name
    root = f"stage{int(part[2]) + 1}" if part[1] == "encoder" else f"up{int(part[2]) + 1}"
    rest = re.sub(r"^0\.(?:net\.)?(\d)\.", r"0.net.\1.", part[3], count=1)
    for theirs, ours in _MMDET_BLOCK.items():
        rest = rest.replace(f".{theirs}.", f".{ours}.")
    return f"{root}.{rest}"


RULES: tuple[Callable[[str], str], ...] = (lambda name: name, _mmdet3d)


def match(state: State, wanted: Sequence[str]) -> tuple[dict[str, str], str]:
    """Our (plain) name -> the checkpoint's, and the prefix under which they were found."""
    best: dict[str, str] = {}
    found = ""
    for rule in RULES:
        theirs: dict[str, str] = {}
        for name in state:
            theirs.setdefault(rule(bare(name)), name)
        for prefix in _prefixes(theirs, wanted):
            matched = {name: theirs[prefix + name] for name in wanted if prefix + name in theirs}
            if len(matched) > len(best):
                best, found = matched, prefix
    return best, found


def _prefixes(theirs: Mapping[str, str], wanted: Sequence[str]) -> list[str]:
    tails = list({wanted[0], wanted[len(wanted) // 2], wanted[-1]}) if wanted else []
    made = [""]
    for name in theirs:
        made += [name[: -len(t)] for t in tails if name.endswith(f".{t}")]
    return list(dict.fromkeys(made))
