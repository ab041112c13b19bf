"""Record the public names and signatures of a library from its source, without importing it.

    python tests/compat/record_names.py FOLDER PACKAGE MODULE... > names.json

FOLDER holds the package's source; MODULE is a dotted name below it. Facts only: names, parameter
names and defaults. The lists that the tests read were made with this from the published sources.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path


def signature(node: ast.FunctionDef, drop_self: bool) -> str:
    """Parameters and defaults, annotations left out."""
    arguments = node.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        argument.annotation = None
    for argument in (arguments.vararg, arguments.kwarg):
        if argument is not None:
            argument.annotation = None
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
    if drop_self and not static and arguments.args:
        arguments.args = arguments.args[1:]
    return f"({ast.unparse(arguments)})"


def describe(node: ast.ClassDef) -> dict[str, object]:
    """Constructor and public methods and properties of a class."""
    made: dict[str, object] = {"kind": "class"}
    members: dict[str, str] = {}
    for child in node.body:
        if not isinstance(child, ast.FunctionDef):
            continue
        if child.name == "__init__":
            made["signature"] = signature(child, True)
        elif not child.name.startswith("_") and child.name not in members:
            kind = any(isinstance(d, ast.Name) and d.id == "property" for d in child.decorator_list)
            members[child.name] = "property" if kind else signature(child, True)
    if members:
        made["members"] = members
    bases = [ast.unparse(base) for base in node.bases]
    if "Enum" in bases or "enum.Enum" in bases:
        made["kind"] = "enum"
        made["members"] = {
            target.id: ast.unparse(child.value)
            for child in node.body
            if isinstance(child, ast.Assign)
            for target in child.targets
            if isinstance(target, ast.Name)
        }
    return made


def names(path: Path, package: str) -> dict[str, object]:
    """Public names of one module: what it defines, and in a package what it brings from inside."""
    found: dict[str, object] = {}
    for node in ast.parse(path.read_text(), str(path)).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            found[node.name] = {"kind": "function", "signature": signature(node, False)}
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            found[node.name] = describe(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and not target.id.startswith("_"):
                    found[target.id] = {"kind": "value"}
        elif isinstance(node, ast.ImportFrom) and path.name == "__init__.py":
            inside = node.level > 0 or (node.module or "").split(".")[0] == package
            for alias in node.names:
                if inside and not (alias.asname or alias.name).startswith("_"):
                    found[alias.asname or alias.name] = {"kind": "import"}
    return found


def main() -> None:
    folder, package, *modules = sys.argv[1:]
    root = Path(folder)
    made = {}
    for module in modules:
        place = root.joinpath(*module.split("."))
        path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        made[module] = dict(sorted(names(path, package).items()))
    json.dump(made, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
