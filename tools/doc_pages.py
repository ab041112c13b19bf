"""Hook of mkdocs: pages of the operators from their docstrings, results from `bench/results`.

Reads source text only; nothing of the package is imported, so the site builds without PyTorch.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"ops": "Sparse engine", "pointops": "Point operators"}
BACKENDS = {"cpu": "CPU", "metal": "Metal", "cuda": "CUDA"}
RESULTS = "<!-- results -->"
PREFIX = "operators"

Function = ast.FunctionDef | ast.ClassDef


# ---- the hook


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the operators' pages to the navigation."""
    section: list[Any] = [f"{PREFIX}/index.md"]
    for package, title in PACKAGES.items():
        section.append({title: [page_of(package, stem) for stem in stems(package)]})
    for entry in config.nav or []:
        if isinstance(entry, dict) and "Operators" in entry:
            entry["Operators"] = section
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Make the operators' pages."""
    made = {f"{PREFIX}/index.md": index_page()}
    for package in PACKAGES:
        for stem in stems(package):
            made[page_of(package, stem)] = operator_page(package, stem)
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the committed results into the page that asks for them."""
    if RESULTS not in markdown:
        return markdown
    return markdown.replace(RESULTS, results_text(sorted(ROOT.glob("bench/results/**/*.json"))))


# ---- operators


def stems(package: str) -> list[str]:
    """Operators of a package, by file."""
    folder = ROOT / "sparse3d" / package
    return sorted(file.stem for file in folder.glob("*.py") if not file.stem.startswith("_"))


def page_of(package: str, stem: str) -> str:
    """Where an operator's page lies; one of them is called index."""
    return f"{PREFIX}/{package}-{stem}.md"


def index_page() -> str:
    """All operators, with the backends that have kernels of their own."""
    lines = [
        "# Operators\n",
        "One page for each operator file, made from its docstrings: the contract that every "
        "backend keeps. Where a backend has no kernel, the plain PyTorch reference runs on the "
        "same device; operators without any kernel are made of the others. "
        "`sparse3d.backends()` prints what is the case for you.\n",
    ]
    for package, title in PACKAGES.items():
        lines += [f"## {title}\n", f"| operator | meaning | {' | '.join(BACKENDS.values())} |",
                  f"|{'--|' * (2 + len(BACKENDS))}"]  # fmt: skip
        for stem in stems(package):
            meaning = first_sentence(module_doc(parse(package, stem)))
            marks = ["yes" if has_kernel(backend, stem) else "" for backend in BACKENDS]
            link = f"[`{package}.{stem}`]({package}-{stem}.md)"
            lines.append(f"| {link} | {cell(meaning)} | {' | '.join(marks)} |")
        lines.append("")
    return "\n".join(lines)


def operator_page(package: str, stem: str) -> str:
    """The contract of one file and its public names."""
    tree = parse(package, stem)
    body = module_doc(tree)
    places = ", ".join(
        f"{title} (`sparse3d/{backend}/{stem}.py`)"
        for backend, title in BACKENDS.items()
        if has_kernel(backend, stem)
    )
    parts = [
        f"# {stem}\n",
        markdown(body),
        f"*Contract:* `sparse3d/{package}/{stem}.py`. *Kernels:* {places or 'none of its own'}.\n",
    ]
    for node in public(package, stem, tree):
        parts.append(entry(node, f"sparse3d.{package}.{stem}"))
    return "\n".join(parts)


def parse(package: str, stem: str) -> ast.Module:
    """The syntax tree of an operator's file."""
    return ast.parse((ROOT / "sparse3d" / package / f"{stem}.py").read_text("utf-8"))


def module_doc(tree: ast.Module) -> str:
    """A module's docstring."""
    return ast.get_docstring(tree) or ""


def has_kernel(backend: str, stem: str) -> bool:
    """Whether a backend has a file for this operator."""
    return (ROOT / "sparse3d" / backend / f"{stem}.py").is_file()


def public(package: str, stem: str, tree: ast.Module) -> list[Function]:
    """Public functions and classes, in the order of the file.

    What `__all__` names; without it, what the package exports from the file; else all.
    """
    nodes = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node)
    ]
    chosen = listed(tree)
    if chosen is None:
        init = ast.parse((ROOT / "sparse3d" / package / "__init__.py").read_text("utf-8"))
        chosen = {
            alias.name
            for node in init.body
            if isinstance(node, ast.ImportFrom) and node.module == stem
            for alias in node.names
        }
    return [node for node in nodes if not chosen or node.name in chosen]


def listed(tree: ast.Module) -> set[str] | None:
    """The names of `__all__`, if there is one."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return None


def entry(node: Function, module: str) -> str:
    """Heading, signature and docstring of one name; a class with its public methods."""
    parts = [f"## {node.name}\n", signature(node), markdown(ast.get_docstring(node) or "")]
    if isinstance(node, ast.ClassDef):
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                doc = ast.get_docstring(method)
                if doc:
                    parts += [f"### {node.name}.{method.name}\n", signature(method), markdown(doc)]
    parts.append(f"*In* `{module}`.\n")
    return "\n".join(parts)


def signature(node: Function) -> str:
    """The head of a definition, one argument a line where it is long."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        head = f"class {node.name}({bases})" if bases else f"class {node.name}"
        made = next((m for m in node.body if isinstance(m, ast.FunctionDef)
                     and m.name == "__init__"), None)  # fmt: skip
        return code(head) if made is None else code(head) + signature(made)
    back = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    text = f"{node.name}({ast.unparse(node.args)}){back}"
    if len(text) > 88:
        lines = [f"    {argument}," for argument in arguments(node.args)]
        text = "\n".join([f"{node.name}(", *lines, f"){back}"])
    return code(text)


def arguments(args: ast.arguments) -> list[str]:
    """Each argument as it stands in the head."""
    parts = re.split(r", (?![^\[(]*[\])])", ast.unparse(args))
    return [part for part in parts if part]


def code(text: str) -> str:
    """A block of code."""
    return f"```py\n{text}\n```\n"


# ---- docstrings

SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Example|Examples):$")
FIELD = re.compile(r"^([A-Z][A-Za-z' ,-]{2,60}|`[^`]+`): (.*)$")


def markdown(doc: str) -> str:
    """A google docstring as markdown: sections, named facts, examples."""
    out: list[str] = []
    for number, block in enumerate(blocks(doc)):
        head = SECTION.match(block[0])
        body = textwrap.dedent("\n".join(block[1:]))
        if head and head[1].startswith("Example"):
            out.append(f"**Example**\n\n```pycon\n{body}\n```\n")
        elif head:
            out.append(f"**{head[1]}**\n\n{items(body)}\n")
        elif block[0].startswith((" ", ">>>")):
            text = textwrap.dedent("\n".join(block))
            out.append(f"```{'pycon' if text.startswith('>>>') else 'text'}\n{text}\n```\n")
        elif number and FIELD.match(block[0]):
            out.append(facts(block))
        else:
            out.append(safe("\n".join(block)) + "\n")
    return "\n".join(out)


def blocks(doc: str) -> list[list[str]]:
    """Paragraphs; what is indented below the head of a section belongs to it."""
    found: list[list[str]] = []
    fresh = True
    for line in doc.splitlines():
        inside = bool(found) and SECTION.match(found[-1][0]) is not None
        if not line.strip():
            if inside:
                found[-1].append("")
            fresh = True
        elif SECTION.match(line) or (fresh and not (inside and line.startswith(" "))):
            found.append([line])
            fresh = False
        else:
            found[-1].append(line)
            fresh = False
    return [strip(block) for block in found]


def strip(block: list[str]) -> list[str]:
    """Without blank lines at the end."""
    while not block[-1].strip():
        block = block[:-1]
    return block


def items(body: str) -> str:
    """Entries of a section as a list."""
    out: list[str] = []
    for line in body.splitlines():
        named = re.match(r"^(\*{0,2}[\w, .`/*-]+?): (.*)$", line)
        if named and not line.startswith(" "):
            out.append(f"- `{named[1].strip('`')}`: {safe(named[2])}")
        elif line.strip() and (not out or not line.startswith(" ")) and not out:
            out.append(f"- {safe(line)}")
        elif line.strip():
            out[-1] += " " + safe(line.strip())
    return "\n".join(out) + "\n"


def facts(block: list[str]) -> str:
    """Lines "Name: what holds" as a list."""
    out: list[str] = []
    for line in block:
        named = FIELD.match(line)
        if named:
            out.append(f"- **{named[1]}**: {safe(named[2])}")
        else:
            out[-1] += " " + safe(line.strip())
    return "\n".join(out) + "\n"


def safe(text: str) -> str:
    """Text whose angle brackets are no tags; code stays."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if i % 2 else part.replace("<", "&lt;") for i, part in enumerate(parts))


def first_sentence(doc: str) -> str:
    """What stands before the first full stop or colon of a docstring, or its `Meaning:`."""
    text = " ".join(doc.split("\n\n", maxsplit=1)[0].split())
    return re.split(r"(?<=[.:;])\s", text)[0].rstrip(".:;")


def cell(text: str) -> str:
    """Text for a table."""
    return safe(text).replace("|", "\\|")


# ---- results


def results_text(paths: Iterable[Path]) -> str:
    """Tables of result files; see docs/performance.md for their form."""
    parts = [result_text(path) for path in paths]
    return "\n".join(parts) or "*No results are committed yet.*\n"


def result_text(path: Path) -> str:
    """One result file: where it was measured, and its numbers."""
    data = json.loads(path.read_text("utf-8"))
    if not isinstance(data, dict):
        data = {"results": data}
    title = data.pop("title", path.stem.replace("_", " ").replace("--", ", "))
    about = data.pop("about", "")
    where = {**data.pop("provenance", {}), **data.pop("metadata", {})}
    parts = [f"## {title}\n"]
    if about:
        parts.append(f"{safe(str(about))}\n")
    if where:
        said = "; ".join(f"{key} {shown(value)}" for key, value in where.items() if value)
        parts.append(f"*Measured on:* {safe(said)}.\n")
    for key, value in data.items():
        name = "" if key == "results" else f"### {key.replace('_', ' ')}\n\n"
        if rows(value):
            parts.append(name + table(value))
        elif isinstance(value, dict | list):
            parts.append(name + table(flat(value)))
        else:
            parts.append(f"{key.replace('_', ' ')}: {cell(shown(value))}\n")
    return "\n".join(parts)


def rows(value: Any) -> bool:
    """Whether this is a list of flat records."""
    return bool(value) and isinstance(value, list) and all(
        isinstance(row, dict) and not any(isinstance(v, dict | list) for v in row.values())
        for row in value
    )  # fmt: skip


def flat(value: Any, prefix: str = "") -> list[dict[str, Any]]:
    """Every number of a nested result with the path to it."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    out: list[dict[str, Any]] = []
    for key, inner in pairs:
        name = f"{prefix} / {key}" if prefix else str(key)
        if isinstance(inner, dict | list):
            out += flat(inner, name)
        else:
            out.append({"what": name, "value": inner})
    return out


def table(records: list[Mapping[str, Any]]) -> str:
    """Records as a table; numbers to the right."""
    if not records:
        return ""
    columns = list(dict.fromkeys(key for record in records for key in record))
    numeric = [
        all(isinstance(record.get(key, 0), int | float) for record in records) for key in columns
    ]
    lines = [
        f"| {' | '.join(cell(key) for key in columns)} |",
        f"|{'|'.join('--:' if right else '--' for right in numeric)}|",
    ]
    for record in records:
        lines.append(f"| {' | '.join(cell(shown(record.get(key, ''))) for key in columns)} |")
    return "\n".join(lines) + "\n"


def shown(value: Any) -> str:
    """A number with as many digits as it deserves."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
