"""PLY: text and binary, either byte order. Only the vertices are read, faces are not."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparse3d.data.cloud import PointCloud, build
from sparse3d.data.kitti import ScanError, file_bytes
from sparse3d.data.readers._shared import refusing

__all__ = ["read"]

_HEADER = 2**16
_KINDS = {
    **dict.fromkeys(("char", "int8"), "i1"),
    **dict.fromkeys(("uchar", "uint8"), "u1"),
    **dict.fromkeys(("short", "int16"), "i2"),
    **dict.fromkeys(("ushort", "uint16"), "u2"),
    **dict.fromkeys(("int", "int32"), "i4"),
    **dict.fromkeys(("uint", "uint32"), "u4"),
    **dict.fromkeys(("float", "float32"), "f4"),
    **dict.fromkeys(("double", "float64"), "f8"),
}
_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}


@dataclass
class _Element:
    """Lines of the header that describe one table; a list's kind has the kind of its length too."""

    name: str
    count: int
    fields: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def least(self, text: bool) -> int:
        """Bytes that a row takes at least: a list may be empty, a word of text is one letter."""
        if text:
            return max(2 * len(self.fields), 1)
        return sum(int(kinds[0][1]) for _, kinds in self.fields)

    def scalars(self, order: str) -> np.dtype[np.void]:
        """A row without its lists."""
        return np.dtype(
            [(name, order + kinds[0]) for name, kinds in self.fields if len(kinds) == 1]
        )

    def has_lists(self) -> bool:
        return any(len(kinds) > 1 for _, kinds in self.fields)


def read(path: Path, size: int, *, drop_invalid: bool) -> PointCloud:
    """Read the vertices and their scalar properties."""
    raw = file_bytes(path, size)
    order, elements, start = _header(path, raw)
    _check_counts(path, order, elements, size - start)
    at = next(i for i, element in enumerate(elements) if element.name == "vertex")
    table = _vertices(path, raw, order, elements[: at + 1], start)
    names = {name.lower(): name for name in table.dtype.names or ()}
    points = np.stack([np.asarray(table[names[axis]]) for axis in "xyz"], axis=1)
    attributes = {}
    for name in table.dtype.names or ():
        column = table[name]
        if name.lower() not in "xyz":
            attributes[name] = column.astype(column.dtype.newbyteorder("="))
    return build(path, "ply", points, attributes, drop_invalid=drop_invalid)


def _header(path: Path, raw: bytes) -> tuple[str, list[_Element], int]:
    """Byte order (empty for text), tables, and the byte where the first begins."""
    end = raw.find(b"end_header", 0, _HEADER)
    if not raw.startswith(b"ply") or end < 0:
        raise ScanError(
            f"{path}: must begin with 'ply' and end its header with 'end_header' within {_HEADER} "
            f"bytes, got {raw[:16]!r}"
        )
    newline = raw.find(b"\n", end)
    start = newline + 1 if newline >= 0 else len(raw)
    order: str | None = None
    elements: list[_Element] = []
    lines = raw[:end].decode("latin-1").splitlines()
    for number, line in enumerate(lines[1:], 2):
        words = line.split()
        try:
            if not words or words[0] in ("comment", "obj_info"):
                continue
            if words[0] == "format":
                order = _ORDERS[words[1]]
            elif words[0] == "element":
                elements.append(_Element(words[1], _count(words[2])))
            elif words[0] == "property" and words[1] == "list":
                kinds = (_KINDS[words[2]], _KINDS[words[3]])
                elements[-1].fields.append((words[4], kinds))
            elif words[0] == "property":
                elements[-1].fields.append((words[2], (_KINDS[words[1]],)))
            else:
                raise KeyError(words[0])
        except (KeyError, IndexError, ValueError):
            raise ScanError(
                f"{path}: line {number} of the header must be a PLY entry, got {line.strip()!r}; "
                "the header is damaged"
            ) from None
    if order is None:
        raise ScanError(f"{path}: header must name a format, got none; the header is damaged")
    _check_vertex(path, elements)
    return order, elements, start


def _count(word: str) -> int:
    if not word.isdecimal():
        raise ValueError(word)
    return int(word)


def _check_vertex(path: Path, elements: list[_Element]) -> None:
    vertex = next((element for element in elements if element.name == "vertex"), None)
    if vertex is None:
        names = [element.name for element in elements]
        raise ScanError(f"{path}: header must have an element vertex, got {names or 'no element'}")
    names = [name.lower() for name, kinds in vertex.fields if len(kinds) == 1]
    if any(names.count(axis) != 1 for axis in "xyz"):
        raise ScanError(f"{path}: vertices must have properties x, y, z, got {names}")
    if len(set(names)) != len(names):
        raise ScanError(f"{path}: vertices must have properties of different names, got {names}")


def _check_counts(path: Path, order: str, elements: list[_Element], body: int) -> None:
    """Compare what the header promises with the bytes that follow it."""
    least = 0
    for element in elements:
        row = element.least(not order)
        if element.count and not row:
            raise ScanError(f"{path}: element {element.name} must have properties, got none")
        least += row * element.count
        if least > body + (not order):  # the last line of text may lack its end
            raise ScanError(
                f"{path}: {element.count} rows of element {element.name} must fit the file, got "
                f"{body} bytes after the header where {least} are needed at least; the file is cut "
                "off or its header is damaged"
            )


def _vertices(
    path: Path, raw: bytes, order: str, elements: list[_Element], start: int
) -> npt.NDArray[np.void]:
    """The scalars of the last of these elements."""
    *before, vertex = elements
    with refusing(path, "vertices"):
        if not order:
            lines = io.TextIOWrapper(io.BytesIO(memoryview(raw)[start:]), "latin-1")
            return _text_rows(islice(lines, sum(each.count for each in before), None), vertex)
        for element in before:
            start = _binary_rows(raw, order, element, start)[1]
        rows = _binary_rows(raw, order, vertex, start)[0]
        return np.frombuffer(rows, vertex.scalars(order), vertex.count)


def _text_rows(lines: Iterable[str], vertex: _Element) -> npt.NDArray[np.void]:
    """One row from each line."""
    if not vertex.count:
        return np.empty(0, vertex.scalars("="))
    if vertex.has_lists():
        lines = (_without_lists(line, vertex) for line in lines)
    rows = (_filled(line) for line in islice(lines, vertex.count))
    table = np.loadtxt(rows, vertex.scalars("="), comments=None, ndmin=1)
    if len(table) != vertex.count:
        raise ValueError(f"must have a line for each of {vertex.count} rows, got {len(table)}")
    return table


def _filled(line: str) -> str:
    """The line as it is: an empty one would be skipped in silence."""
    if not line.strip():
        raise ValueError("a row is an empty line")
    return line


def _without_lists(line: str, vertex: _Element) -> str:
    words, kept = iter(line.split()), []
    for name, kinds in vertex.fields:
        word = next(words, "")
        if len(kinds) == 1:
            kept.append(word)
        else:
            length = _length(name, int(word))
            if len(list(islice(words, length))) < length:
                raise ValueError(f"list {name} of {length} numbers ends after its line")
    return " ".join([*kept, *words])


def _binary_rows(
    raw: bytes, order: str, element: _Element, start: int
) -> tuple[memoryview | bytearray, int]:
    """The bytes of all scalars, and where the next element begins. Lists are stepped over."""
    if not element.has_lists():
        end = start + element.least(False) * element.count
        return memoryview(raw)[start:end], end
    kept = bytearray()
    for _ in range(element.count):
        for name, kinds in element.fields:
            end = start + int(kinds[0][1])
            if len(kinds) == 1:
                kept += raw[start:end]
            else:
                (length,) = np.frombuffer(raw[start:end], order + kinds[0])
                end += _length(name, int(length)) * int(kinds[1][1])
            if end > len(raw):
                raise ValueError(f"{name} ends after the file")
            start = end
    return kept, start


def _length(name: str, length: int) -> int:
    if length < 0:
        raise ValueError(f"list {name} must have a length of at least 0, got {length}")
    return length
