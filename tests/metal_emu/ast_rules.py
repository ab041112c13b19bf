"""Rules of Metal that C++ for OpenCL does not have, read off clang's syntax tree."""

from typing import Any

Node = dict[str, Any]

END_OF_SHIM = "msl_end_of_shim"
_DECLARED = {"ParmVarDecl", "VarDecl", "FieldDecl", "TypedefDecl", "TypeAliasDecl"}


def _type(node: Node) -> str:
    return node.get("type", {}).get("qualType", "")


def _children(node: Node) -> list[Node]:
    return node.get("inner", [])


def _unqualified_pointers(node: Node) -> list[str]:
    """A pointer without an address space is __generic to clang and an error to Metal."""
    if node.get("isImplicit"):
        return []
    found = []
    if node.get("kind") in _DECLARED and "__generic" in _type(node):
        written = _type(node).replace("__generic ", "")
        found.append(
            f"{node.get('name')}: pointer or reference without an address space ({written})"
        )
    for child in _children(node):
        found += _unqualified_pointers(child)
    return found


def _statics(node: Node) -> list[str]:
    found = []
    if node.get("kind") == "VarDecl" and node.get("storageClass") == "static":
        found.append(f"{node.get('name')}: static local variable")
    for child in _children(node):
        found += _statics(child)
    return found


def _called(node: Node) -> set[str]:
    names = {child.get("name") for child in node.get("lookups", [])}
    referenced = node.get("referencedDecl", {})
    if referenced.get("kind") in ("FunctionDecl", "CXXMethodDecl"):
        names.add(referenced.get("name"))
    for child in _children(node):
        names |= _called(child)
    return names


def _recursive(calls: dict[str, set[str]]) -> list[str]:
    def reachable(name: str, seen: set[str]) -> set[str]:
        for callee in calls.get(name, set()) & calls.keys():
            if callee not in seen:
                seen.add(callee)
                reachable(callee, seen)
        return seen

    return [f"{name}: recursion" for name in calls if name in reachable(name, set())]


def ast_complaints(tree: Node) -> list[str]:
    """Complaints about everything after the shim in a `-ast-dump=json` tree."""
    top = _children(tree)
    start = max(i for i, node in enumerate(top) if node.get("name") == END_OF_SHIM) + 1
    found: list[str] = []
    calls: dict[str, set[str]] = {}
    for node in top[start:]:
        found += _unqualified_pointers(node)
        if node.get("kind") == "VarDecl" and "__constant" not in _type(node):
            found.append(f"{node.get('name')}: a program-scope variable must be constant")
        elif node.get("kind") in ("FunctionDecl", "FunctionTemplateDecl"):
            found += _statics(node)
            calls.setdefault(node["name"], set()).update(_called(node))
    return found + _recursive(calls)
