"""Reads the kernels of a .metal source: names, parameters, attributes. A parser of signatures, not
of Metal. Also what the emulator of the tests reads them with."""

import re
from dataclasses import dataclass

ATTRIBUTES = (
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_threadgroup",
    "threadgroups_per_grid",
    "threads_per_grid",
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "threads_per_simdgroup",
    "simdgroups_per_threadgroup",
    "dispatch_threads_per_threadgroup",
)
"""Built-in inputs; the position in this tuple is the number the runtime knows them by."""

POSITIONS = frozenset(a for a in ATTRIBUTES if "index" not in a and "simdgroup" not in a)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(r"(?:\bkernel\b|\[\[\s*kernel\s*\]\])\s+void\s+(\w+)\s*\(")
_ATTRIBUTE = re.compile(r"\[\[\s*(\w+)\s*(?:\(\s*(\w+)\s*\))?\s*\]\]")
_DECLARATION = re.compile(r"(.*?)([*&]?)\s*(\w+)$", re.DOTALL)


class MetalError(RuntimeError):
    """What Metal or PyTorch would refuse at run time, or a fault that the checker found."""


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter. `indirection` is "*", "&" or "" (a built-in input)."""

    type: str
    indirection: str
    name: str
    attribute: str
    index: int

    @property
    def read_only(self) -> bool:
        return bool({"const", "constant"} & set(self.type.split()))


@dataclass(frozen=True)
class KernelSource:
    """The signature of one kernel function."""

    name: str
    parameters: tuple[Parameter, ...]

    @property
    def buffers(self) -> list[Parameter]:
        """Parameters the caller passes, by buffer index."""
        return sorted((p for p in self.parameters if p.indirection), key=lambda p: p.index)


def strip_comments(text: str) -> str:
    """Blanks comments out, so that lines and columns stay where they were."""
    return _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def split_arguments(text: str) -> list[str]:
    """Splits at commas outside every bracket."""
    parts, depth, current = [], 0, ""
    for ch in text:
        depth += (ch in "([{<") - (ch in ")]}>")
        if ch == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += ch
    return [*parts, current] if current.strip() else parts


def _parameter(kernel: str, text: str, next_index: int) -> Parameter:
    attribute = _ATTRIBUTE.search(text)
    declaration = _DECLARATION.match(re.sub(r"\[\[.*?\]\]", "", text, flags=re.DOTALL).strip())
    if declaration is None:
        raise MetalError(f"{kernel}: parameter not understood: {text.strip()}")
    kind, indirection, name = declaration.groups()
    kind = " ".join(kind.split())
    what = attribute.group(1) if attribute else None
    if not indirection:
        if what not in ATTRIBUTES:
            raise MetalError(f"{kernel}: parameter {name} must have a known attribute, got {what}")
        return Parameter(kind, "", name, what, -1)
    if what == "threadgroup":
        raise MetalError(f"{kernel}: threadgroup(n) arguments cannot be set through compile_shader")
    if what not in (None, "buffer"):
        raise MetalError(f"{kernel}: {name} must be a buffer, got {what}")
    index = int(attribute.group(2)) if attribute else next_index
    return Parameter(kind, indirection, name, "buffer", index)


def parse_kernels(text: str) -> list[KernelSource]:
    """The kernels of a source, in order."""
    stripped = strip_comments(text)
    kernels = []
    for match in _KERNEL.finditer(stripped):
        end, depth = match.end(), 1
        while depth:
            depth += (stripped[end] == "(") - (stripped[end] == ")")
            end += 1
        parameters: list[Parameter] = []
        next_index = 0
        for part in split_arguments(stripped[match.end() : end - 1]):
            parameters.append(_parameter(match.group(1), part, next_index))
            if parameters[-1].indirection:
                next_index = parameters[-1].index + 1
        kernels.append(KernelSource(match.group(1), tuple(parameters)))
    return kernels
