"""Which entry of a checkpoint is which of a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from ._files import State

Form = Callable[[str], str]


def exact(name: str) -> str:
    """A name without `module.` prefixes."""
    while name.startswith("module."):
        name = name.removeprefix("module.")
    return name


def plain(name: str) -> str:
    """A name without `module.`, and `kernel` as `weight`."""
    return re.sub(r"(^|\.)kernels?$", r"\1weight", exact(name))


_WRAPPER = re.compile(r"(^|\.)(?:bn|linear)\.(?=[a-z_]+$)")


def bare(name: str) -> str:
    """A plain name without the wrapper (`.bn.`, `.linear.`) of a MinkowskiEngine layer."""
    return plain(_WRAPPER.sub(r"\1", exact(name)))


def only_child(names: Iterable[str]) -> Callable[[str], bool]:
    """Whether the layer that an entry belongs to is the only child of its parent."""
    children: dict[str, set[str]] = {}
    for name in names:
        parts = exact(name).split(".")
        for depth in range(len(parts)):
            children.setdefault(".".join(parts[:depth]), set()).add(parts[depth])

    def told(name: str) -> bool:
        return len(children[".".join(exact(name).split(".")[:-2])]) == 1

    return told


def wrapped(names: Iterable[str]) -> set[str]:
    """Entries whose `.bn.` or `.linear.` is a wrapper: nothing else lies beside it."""
    listed = list(names)
    alone = only_child(listed)
    return {name for name in listed if _WRAPPER.search(exact(name)) and alone(name)}


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


RULES: tuple[Form, ...] = (lambda name: name, _mmdet3d)

# Published networks on MinkowskiEngine, by names that their code alone makes.
_MINKOWSKI_NETS = (
    re.compile(r"(^|\.)conv(tr)?\d+p\d+s\d+\.kernel$"),  # its examples' U-Nets
    re.compile(
        r"^backbone\.(conv_input|encoder|decoder)\..+\.net\.\d\.bn\.weight$"
    ),  # mmdetection3d
)


def is_minkowski_net(names: Iterable[str]) -> bool:
    """Whether these are entries of a published network whose layers are known."""
    return any(net.search(exact(name)) for name in names for net in _MINKOWSKI_NETS)


def match(state: State, wanted: Sequence[str]) -> tuple[dict[str, str], str]:
    """Our name -> the checkpoint's, and the prefix under which they were found."""
    found = matches(state, wanted)
    return found[0] if found else ({}, "")


def matches(state: State, wanted: Sequence[str]) -> list[tuple[dict[str, str], str]]:
    """What `match` chose first, then other parts of the checkpoint that have as many entries."""
    best: list[tuple[dict[str, str], str]] = []
    for rule in RULES:
        forms: tuple[Form, ...] = (exact, plain, bare)
        tables = {form: _table(state, rule, form) for form in forms}
        for prefix in _prefixes([name for table in tables.values() for name in table], wanted):
            matched = _matched(tables, wanted, prefix)
            most = len(best[0][0]) if best else 0
            if len(matched) > most:
                best = [(matched, prefix)]
            elif matched and len(matched) == most and prefix not in [known for _, known in best]:
                best.append((matched, prefix))
    return best


def _table(state: State, rule: Form, form: Form) -> dict[str, list[str]]:
    made: dict[str, list[str]] = {}
    for name in state:
        made.setdefault(rule(form(name)), []).append(name)
    return made


def _matched(
    tables: Mapping[Form, dict[str, list[str]]], wanted: Sequence[str], prefix: str
) -> dict[str, str]:
    """Equal names first; then those that are equal, and one of a kind, without a wrapper."""
    made: dict[str, str] = {}
    used: set[str] = set()
    for ours, theirs in ((exact, exact), (plain, plain), (plain, bare), (bare, plain)):
        left: dict[str, list[str]] = {}
        for name in wanted:
            if name not in made:
                left.setdefault(prefix + ours(name), []).append(name)
        for key, names in left.items():
            free = [name for name in tables[theirs].get(key, ()) if name not in used]
            if len(names) == 1 and (len(free) == 1 or (free and theirs is not bare)):
                made[names[0]] = free[0]
                used.add(free[0])
    return made


def _prefixes(theirs: Sequence[str], wanted: Sequence[str]) -> list[str]:
    picked = [wanted[0], wanted[len(wanted) // 2], wanted[-1]] if wanted else []
    tails = {form(name) for form in (exact, plain, bare) for name in picked}
    made = [""]
    for name in theirs:
        made += [name[: -len(t)] for t in sorted(tails) if name.endswith(f".{t}")]
    return list(dict.fromkeys(made))
