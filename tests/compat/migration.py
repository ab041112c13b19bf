"""Tables of `docs/migration`: what becomes of every recorded name of a peer.

    python tests/compat/migration.py   # writes them; a test keeps them true

A name refuses if it says NotImplementedError when it is called (`probed`, in a process of its own);
it works if it is there with the recorded parameters and defaults; whatever is otherwise must be
told in the document's own words, as a line `* \\`name\\`: ...` under "What differs", which a test
exercises (test_differences.py), or "What is refused".
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
DOCS = HERE.parent.parent / "docs" / "migration"
MARKER = "<!-- Below this line: written by tests/compat/migration.py -->\n"
PEERS = {
    "spconv": "sparse3d.compat.spconv",
    "spconv 1.x": "sparse3d.compat.spconv",
    "minkowski": "sparse3d.compat.minkowski",
    "torchsparse": "sparse3d.compat.torchsparse",
    "torchsparse_1_4": "sparse3d.compat.torchsparse_1_4",
    "torchsparse_1_2": "sparse3d.compat.torchsparse_1_2",
    "flex_gemm": "sparse3d.compat.flex_gemm",
    "pointnet2_ops": "sparse3d.compat.pointnet2_ops",
    "knn_cuda": "sparse3d.compat.knn_cuda",
    "torch_cluster": "sparse3d.compat.torch_cluster",
    "torch_scatter": "sparse3d.compat.torch_scatter",
    "pytorch3d": "sparse3d.compat.pytorch3d",
    "pointops": "sparse3d.compat.pointops",
    "pointops 1.x": "sparse3d.compat.pointops",
    "pointops2": "sparse3d.compat.pointops2",
    "mps_pointops": "sparse3d.compat.mps_pointops",
}
DOCUMENTS = {
    "spconv 1.x": "spconv",
    "torchsparse_1_4": "torchsparse",
    "pointops 1.x": "pointops",
    "pointops2": "pointops",
    "torchsparse_1_2": "torchsparse",
}
"""Peers that are told of in another's document, before their own names there."""
TITLES = {
    "spconv 1.x": "`spconv.utils` of 1.2",
    "torchsparse_1_4": "1.4",
    "pointops 1.x": "the first generation",
    "pointops2": "`pointops2`",
    "torchsparse_1_2": "versions before 1.4",
}
AS_THE_PEER = {"fuse_spconv_act_eval": "refuses what is no ReLU, as the peer's does"}
"""Names that refuse the arguments of a probe, and not others."""
Facts = dict[str, Any]


def recorded(peer: str) -> dict[str, dict[str, Facts]]:
    place = HERE / "names" / f"{peer.replace(' 1.x', '_1')}.json"
    if peer == "spconv":
        place = HERE.parent / "nn" / "spconv_pytorch_names.json"
    made: dict[str, dict[str, Facts]] = json.loads(place.read_text())
    if peer == "spconv":  # what sparse3d.nn has no module for
        made |= json.loads((HERE / "names" / "spconv_quantization.json").read_text())
    return made


def document(peer: str) -> Path:
    return DOCS / f"{DOCUMENTS.get(peer, peer)}.md"


def lines(peer: str, heading: str) -> dict[tuple[str, ...], str]:
    """Names -> words of each line `* `name`, `other`: words` under a heading."""
    text = document(peer).read_text().split(MARKER)[0]
    part = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    made = {}
    for line in re.findall(r"^\* ((?:.+\n)(?:  .+\n)*)", part[1] if part else "", re.MULTILINE):
        names, _, words = line.partition(": ")
        made[tuple(re.findall(r"`([^`]+)`", names))] = " ".join(words.split())
    return made


def told(peer: str, heading: str) -> dict[str, str]:
    """Each name of those lines -> words."""
    return {name: words for names, words in lines(peer, heading).items() for name in names}


def absent(peer: str) -> list[str]:
    """Modules told of under "What differs" in a line that ends so: `not there.`"""
    known = told(peer, "What differs").items()
    return [name for name, words in known if words.endswith("not there.")]


# ------------------------------------------------------------------------------ comparing


def parameters(signature: str) -> list[tuple[str, Any]]:
    """Names and defaults; `...` for a default that is no literal."""
    arguments = ast.parse(f"def f{signature}: pass").body[0].args  # type: ignore[attr-defined]
    plain = arguments.args + arguments.kwonlyargs
    missing = [None] * (len(arguments.args) - len(arguments.defaults))
    defaults = [*missing, *arguments.defaults, *arguments.kw_defaults]
    made = []
    for argument, default in zip(plain, defaults, strict=True):
        value: Any = inspect.Parameter.empty
        if default is not None:
            try:
                value = ast.literal_eval(default)
            except ValueError:
                value = ...
        made.append((argument.arg, value))
    return made


def by_position(signature: str) -> tuple[int, int]:
    """Arguments without names (of an autograd function's `apply`), and how many must be given."""
    arguments = ast.parse(f"def f{signature}: pass").body[0].args  # type: ignore[attr-defined]
    total = len(arguments.posonlyargs)
    return (total, total - len(arguments.defaults)) if total else ()  # type: ignore[return-value]


def _by_position(mine: list[inspect.Parameter], total: int, least: int) -> str:
    places = [p for p in mine if p.kind is not p.KEYWORD_ONLY]
    if len(places) < total:
        return f"takes {len(places)} arguments"
    needed = [p.name for p in mine if p.default is p.empty]
    return f"{needed[least]} must be given" if len(needed) > least else ""


def mismatch(function: Any, signature: str) -> str:
    """How a callable's parameters differ from recorded ones; empty if they do not."""
    mine = inspect.signature(function).parameters
    if any(p.kind is p.VAR_POSITIONAL for p in mine.values()):
        return ""
    unnamed = by_position(signature)
    if unnamed:
        return _by_position(list(mine.values()), *unnamed)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in mine.values())
    for name, default in parameters(signature):
        if name not in mine:
            if not takes_any:
                return f"takes no {name}"
            continue
        own = mine[name].default
        if default is not inspect.Parameter.empty and own is inspect.Parameter.empty:
            return f"{name} must be given"
        if default not in (..., inspect.Parameter.empty, None) and not _alike(own, default):
            return f"{name} defaults to {own!r}"
    names = [name for name, _ in parameters(signature) if name in mine]
    if names != [name for name in mine if name in names]:
        return "other order of parameters"
    return ""


def _alike(own: Any, default: Any) -> bool:
    return bool(own == default or own is None or getattr(own, "value", own) == default)


def find(peer: str, module: str, name: str) -> Any:
    root = next(iter(recorded(peer))).split(".")[0]
    place = importlib.import_module(PEERS[peer] + module.removeprefix(root))
    return getattr(place, name)


def difference(peer: str, module: str, name: str, facts: Facts) -> str:
    """What differs in a name's surface; empty if nothing does.

    Raises:
        AttributeError: if the name is not there.
        ModuleNotFoundError: if its module is not.
    """
    mine = find(peer, module, name)
    lacking = [member for member in facts.get("members", {}) if not hasattr(mine, member)]
    if lacking:
        return f"lacks {', '.join(lacking)}"
    if "signature" in facts:
        words = mismatch(mine, facts["signature"])
        if words:
            return words
    for member, signature in facts.get("members", {}).items():
        function = inspect.getattr_static(mine, member)
        if signature.startswith("(") and inspect.isfunction(function):
            words = mismatch(getattr(mine, member), signature)
            if words:
                return f"{member} {words}"
    return ""


def refuses(value: Any) -> bool:
    """Whether calling it says that it is not implemented."""
    wanted = [p for p in inspect.signature(value).parameters.values() if p.default is p.empty]
    named = [p for p in wanted if p.kind is p.POSITIONAL_OR_KEYWORD]
    try:
        value(*[torch.zeros(1) for _ in named])
    except NotImplementedError:
        return True
    except Exception:
        return False
    return False


def probe() -> dict[str, list[str]]:
    """Names of each peer that refuse a call. It may leave settings behind: see `probed`."""
    made: dict[str, list[str]] = {peer: [] for peer in PEERS}
    for peer in PEERS:
        for module, names in recorded(peer).items():
            for name in names:
                try:
                    value = find(peer, module, name)
                    refused = callable(value) and refuses(value)
                except (AttributeError, ModuleNotFoundError, ValueError):
                    continue  # not there, which test_every_name tells, or without a signature
                if refused:
                    made[peer].append(f"{module}.{name}")
    return made


@functools.lru_cache
def probed() -> dict[str, list[str]]:
    """What `probe` finds, in another process: its calls must not touch the settings of this one."""
    code = "import compat.migration as m, json, sys; json.dump(m.probe(), sys.stderr)"
    paths = [str(HERE.parent), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[str]] = json.loads(run.stderr)
    return found


# ------------------------------------------------------------------------------ the table


def status(peer: str, module: str, name: str) -> str:
    """`works`, `works with a difference` or `refuses`: the last by calling it."""
    keys = (name, f"{module}.{name}")
    if f"{module}.{name}" in probed()[peer] and name not in AS_THE_PEER:
        return "refuses"
    if any(key in told(peer, "What differs") for key in keys):
        return "works with a difference"
    return "works"


def table(peer: str) -> str:
    """The written part of a document."""
    lines, counts = [], {"works": 0, "works with a difference": 0, "refuses": 0}
    for module, names in recorded(peer).items():
        lines += [f"\n### `{module}`\n", "| name | |", "|---|---|"]
        for name in names:
            found = status(peer, module, name)
            counts[found] += 1
            lines.append(f"| `{name}` | {found} |")
    total = sum(counts.values())
    summary = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    return f"\n{total} recorded names: {summary}.\n" + "\n".join(lines) + "\n"


def written(path: Path) -> str:
    """A document as it must be."""
    own = path.read_text().split(MARKER)[0]
    made = own + MARKER
    for peer in PEERS:
        if document(peer) == path:
            of = f" of {TITLES[peer]}" if peer in TITLES else ""
            made += f"\n## Every name{of}\n{table(peer)}"
    return made


if __name__ == "__main__":
    for place in sorted({document(peer) for peer in PEERS}):
        place.write_text(written(place))
