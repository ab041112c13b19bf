"""Which expressions of a file are plain Python: numbers, strings and sequences of them.

A small inference that errs on the strict side: an expression is plain only where literals,
annotations (which mypy holds true) and the names below say so; all else may be a tensor.
"""

from __future__ import annotations

import ast
import re

NUMBER = r"(int|float|str|bool)"
ANNOTATION = re.compile(
    rf"^({NUMBER}|(list|Sequence|set)\[{NUMBER}\]|(list|Sequence)\[tuple\[int, \.\.\.\]\]"
    rf"|tuple\[{NUMBER}(, (\.\.\.|{NUMBER}))*\]|Triple|Sizes)"
    rf"( \| (None|{NUMBER}|tuple\[int, \.\.\.\]))*$"
)
# What these give is plain whatever they take.
READING = {"len", "int", "float", "str", "range", "type", "repr"}
READERS = {
    "tolist",
    "item",
    "numel",
    "dim",
    "bit_length",
    "removeprefix",
    "lower",
    "format",
    "index",
}
# What these give is plain if what they take is.
PASSING = {
    "zip", "enumerate", "min", "max", "sum", "sorted", "reversed", "tuple", "list", "set", "abs",
    "map", "round", "range", "iter", "next",
}  # fmt: skip
MODULES = {"math", "itertools"}
# Facts about a tensor, and what stand-ins keep as integers (declared so in their classes).
ATTRIBUTES = {
    "ndim", "shape", "itemsize", "__name__", "stride", "kernel_size", "kernel_stride", "dilation",
    "kernel_dilation", "padding", "kernel_volume", "spatial_range", "tensor_stride", "dim", "D",
    "dimension", "in_channels", "out_channels", "expansion", "num_taps", "volume", "batch_size",
    "spatial_shape", "spatial_size", "parts", "name", "__all__",
}  # fmt: skip
# Functions of other files that give integers.
FUNCTIONS = {
    "make_ntuple", "convert_to_int_list", "get_tensor_stride", "grid_shape", "get_key",
    "axis_starts", "expand_nd", "size2list", "coarser", "finer", "extent", "get_coordinate_size",
    "make_divisible",
}  # fmt: skip


def _annotated(node: ast.expr | None) -> bool:
    return node is not None and bool(ANNOTATION.match(ast.unparse(node)))


class Scope:
    """Names of one function (or module) that are plain."""

    def __init__(self, names: set[str], functions: set[str], attributes: set[str]) -> None:
        self.names, self.functions, self.attributes = set(names), functions, attributes

    def plain(self, node: ast.AST | None) -> bool:
        """Whether an expression can be no tensor or array."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        return bool(method is not None and method(node))

    def _all(self, nodes: list[ast.expr]) -> bool:
        return all(self.plain(node) for node in nodes)

    def _constant(self, node: ast.Constant) -> bool:
        return True

    _joinedstr = _constant

    def _name(self, node: ast.Name) -> bool:
        return node.id in self.names

    def _list(self, node: ast.List | ast.Tuple | ast.Set) -> bool:
        return self._all(node.elts)

    _tuple = _set = _list

    def _starred(self, node: ast.Starred) -> bool:
        return self.plain(node.value)

    def _unaryop(self, node: ast.UnaryOp) -> bool:
        return self.plain(node.operand)

    def _binop(self, node: ast.BinOp) -> bool:
        return self.plain(node.left) and self.plain(node.right)

    def _boolop(self, node: ast.BoolOp) -> bool:
        return self._all(node.values)

    def _compare(self, node: ast.Compare) -> bool:
        return self._all([node.left, *node.comparators])

    def _ifexp(self, node: ast.IfExp) -> bool:
        return self.plain(node.body) and self.plain(node.orelse)

    def _subscript(self, node: ast.Subscript) -> bool:
        return self.plain(node.value)

    def _attribute(self, node: ast.Attribute) -> bool:
        return node.attr in ATTRIBUTES or node.attr in self.attributes

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp) -> bool:
        inner = Scope(self.names, self.functions, self.attributes)
        for part in node.generators:
            inner.bind(part.target, part.iter)
        return inner.plain(node.elt)

    _generatorexp = _setcomp = _listcomp

    def _call(self, node: ast.Call) -> bool:
        if isinstance(node.func, ast.Name):
            name = node.func.id
            if name in READING | FUNCTIONS | self.functions:
                return True
            return name in PASSING and self._all(node.args)
        if isinstance(node.func, ast.Attribute):
            of = node.func.value
            if isinstance(of, ast.Name) and of.id in MODULES:
                return self._all(node.args)
            return node.func.attr in READERS | FUNCTIONS | self.functions
        return False

    def bind(self, target: ast.expr, value: ast.AST) -> None:
        """Note what an assignment, or a loop over `value`, makes of names."""
        plain = self.plain(value)
        pairs: list[tuple[ast.expr, bool]] = [(target, plain)]
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            if value.func.id in ("zip", "enumerate") and isinstance(target, ast.Tuple):
                parts = [self.plain(arg) for arg in value.args]
                parts = [True, *parts] if value.func.id == "enumerate" else parts
                pairs = list(zip(target.elts, parts, strict=True))
        elif isinstance(value, ast.Tuple) and isinstance(target, ast.Tuple):
            pairs = [(t, self.plain(v)) for t, v in zip(target.elts, value.elts, strict=True)]
        for place, is_plain in pairs:
            for name in ast.walk(place):
                if isinstance(name, ast.Name):
                    (self.names.add if is_plain else self.names.discard)(name.id)


Arithmetic = list[tuple[ast.AST, Scope]]


class Reader(ast.NodeVisitor):
    """Every expression of a file with the scope that it stands in."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: Arithmetic = []
        functions = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and _annotated(node.returns)
        }
        self.scope = Scope(set(), functions, set())
        self._declared(tree)
        self.visit(tree)

    def _declared(self, tree: ast.Module) -> None:
        """Attributes that the file's classes declare or set as plain, and as nothing else."""
        others = set()
        for node in ast.walk(tree):
            for child in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(child, ast.FunctionDef):
                    inner = self._entered(child)
                    named = [child.name] if _annotated(child.returns) else []
                    for line in ast.walk(child):
                        if isinstance(line, ast.Assign) and isinstance(
                            line.targets[0], ast.Attribute
                        ):
                            kept = named.append if inner.plain(line.value) else others.add
                            kept(line.targets[0].attr)
                elif isinstance(child, ast.AnnAssign):
                    named = [ast.unparse(child.target)] if _annotated(child.annotation) else []
                elif isinstance(child, ast.Assign) and self.scope.plain(child.value):
                    named = [ast.unparse(child.targets[0])]
                else:
                    continue
                self.scope.attributes.update(named)
        self.scope.attributes -= others

    def _entered(self, node: ast.FunctionDef | ast.Lambda) -> Scope:
        made = Scope(self.scope.names, self.scope.functions, self.scope.attributes)
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            plain = _annotated(argument.annotation)
            (made.names.add if plain else made.names.discard)(argument.arg)
        return made

    def _inside(self, node: ast.FunctionDef | ast.Lambda) -> None:
        before, self.scope = self.scope, self._entered(node)
        self.generic_visit(node)
        self.scope = before

    visit_FunctionDef = _inside
    visit_Lambda = _inside

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if not isinstance(target, (ast.Attribute, ast.Subscript)):
                self.scope.bind(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name) and _annotated(node.annotation):
            self.scope.names.add(node.target.id)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.scope.bind(node.target, node.iter)
        for line in [*node.body, *node.orelse]:
            self.visit(line)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> None:
        before = self.scope
        self.scope = Scope(before.names, before.functions, before.attributes)
        for part in node.generators:
            self.visit(part.iter)
            self.scope.bind(part.target, part.iter)
            for test in part.ifs:
                self.visit(test)
        self.visit(node.elt)
        self.scope = before

    visit_ListComp = visit_GeneratorExp = visit_SetComp = _comprehension

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, (ast.BinOp, ast.AugAssign, ast.Call)):
            frozen = Scope(self.scope.names, self.scope.functions, self.scope.attributes)
            self.found.append((node, frozen))
        super().generic_visit(node)
