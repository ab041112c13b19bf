"""A .metal source as C++: for NVRTC and nvcc with the dialect header in front, and for g++ in the
tests."""

import re
from functools import cache
from pathlib import Path

from ._source import ATTRIBUTES, KernelSource, Parameter, strip_comments

DIALECT = Path(__file__).parent / "dialect"
"""Folder of the headers that give C++ Metal's types and functions."""

LIST = 12
"""Most entries of a list argument; it travels by value among the kernel's parameters."""

ADDRESS_SPACES = re.compile(r"\b(?:device|constant|threadgroup|thread)\b")
_SHARED = re.compile(
    r"\bthreadgroup\s+((?:const\s+)?[\w:]+(?:\s*<[^;>]*>)?)\s+(\w+)\s*((?:\[[^\]]*\]\s*)*);"
)


def without_address_spaces(text: str) -> str:
    """Metal as C++ for g++ and nvcc. Opens `namespace metal {`; the caller closes it.

    The words are removed here and not by macros, because CUDA's headers use them inside attributes.
    The kernels
    go inside the namespace so that its functions hide those of <cmath>.
    """
    text = re.sub(r"\[\[.*?\]\]", "", strip_comments(text), flags=re.DOTALL)
    text = _SHARED.sub(r"MSL_SHARED \1 \2\3;", text)
    text = re.sub(r"^constant\s+(?=[^;*&()]*=)", "MSL_CONST ", text, flags=re.MULTILINE)
    text = re.sub(r"using\s+namespace\s+metal\s*;", "namespace metal {", text, count=1)
    for match in re.finditer(r"\bthreadgroup\b([^;,)=]*)", text):
        if not re.search(r"[*&]", match.group(1)):
            raise SyntaxError(f"threadgroup declaration not understood: {match.group().strip()}")
    return ADDRESS_SPACES.sub("", text)


@cache
def _dialect() -> str:
    """The headers in one piece: NVRTC has no folder to look in."""
    cuda = (DIALECT / "msl_cuda.h").read_text()
    whole = (DIALECT / "msl_cxx.h").read_text().replace('#include "msl_cuda.h"', cuda)
    return whole.replace("#pragma once\n", "")


def _passed(p: Parameter, kind: str) -> tuple[str, str]:
    """Declaration of a buffer among the entry's parameters, and how the kernel gets it."""
    if p.indirection == "&":
        return f"{kind} {p.name}", p.name
    if "constant" in p.type.split():
        return (
            f"const __grid_constant__ metal::msl_list<{kind}, {LIST}> {p.name}",
            f"const_cast<{kind}*>({p.name}.v)",
        )
    return f"{kind}* {p.name}", p.name


def _built_in(p: Parameter, kind: str, flat: bool) -> str:
    number, kind = ATTRIBUTES.index(p.attribute), kind.replace("const", "").strip()
    groups = "" if flat else ", msl_groups_x, msl_groups_y"
    if kind[-1] in "23":
        axes = (f"metal::msl_attr({number}, {d}{groups})" for d in range(int(kind[-1])))
        return f"{kind}({', '.join(axes)})"
    return f"({kind})metal::msl_attr({number}, 0{groups})"


def hidden(kernel: KernelSource) -> tuple[str, ...]:
    """What an entry gets after the kernel's own arguments, each a uint.

    Blocks are launched along x alone, which takes 2^31 - 1 of them where y takes 65,535: a kernel
    of more than one axis is told the threadgroups along x and y. Metal launches exactly the threads
    asked for: a kernel that knows its place among them is told how many they are.
    """
    flat = not any(p.type.strip()[-1] in "23" for p in kernel.parameters if not p.indirection)
    placed = any(p.attribute == "thread_position_in_grid" for p in kernel.parameters)
    groups = () if flat else ("groups_x", "groups_y")
    threads = ("threads_x",) if flat else ("threads_x", "threads_y")
    return groups + (threads if placed else ())


def _entry(kernel: KernelSource) -> str:
    signature, call, extra = {}, [], hidden(kernel)
    flat = "groups_x" not in extra
    for p in kernel.parameters:
        kind = ADDRESS_SPACES.sub("", p.type).strip()
        if p.indirection:
            signature[p.index], how = _passed(p, kind)
            call.append(how)
        else:
            call.append(_built_in(p, kind, flat))
    declared = [signature[i] for i in sorted(signature)] + [f"uint msl_{name}" for name in extra]
    position = ATTRIBUTES.index("thread_position_in_grid")
    groups = "" if flat else ", msl_groups_x, msl_groups_y"
    beyond = "".join(
        f"if (metal::msl_attr({position}, {axis}{groups}) >= msl_threads_{name}) return; "
        for axis, name in enumerate("xy")
        if f"threads_{name}" in extra
    )
    return (
        f'extern "C" __global__ void {kernel.name}_entry({", ".join(declared)}) '
        f"{{ {beyond}{kernel.name}({', '.join(call)}); }}"
    )


def cuda_source(text: str, kernels: list[KernelSource]) -> str:
    """The same kernels as CUDA that includes nothing, one `__global__` entry each.

    `NAME_entry` takes pointers, scalars and lists by value in buffer order, then what `hidden`
    names.
    """
    body = re.sub(r"^\s*#\s*include\s*<[^>\n]*>", "", text, flags=re.MULTILINE)
    entries = "\n".join(_entry(kernel) for kernel in kernels)
    body = without_address_spaces(body)
    return f"{_dialect()}\n{body}\n{entries}\n}}  // namespace metal\n"
