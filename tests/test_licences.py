"""Licences of what an installation brings: read from the installed metadata, held to a list."""

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("", "cli", "io", "onnx", "train", "view")

ALLOWED = (
    r"MIT(-0|-CMU)?|(The )?MIT License|Expat",
    r"0?BSD(-\d-Clause)?|(New|Modified|Simplified|\d-Clause) BSD|BSD[- ](\d-Clause|3|2)( License)?",
    r"BSD License|3-Clause BSD License",
    r"Apache(-2\.0| 2\.0|( Software)? License( 2\.0|, Version 2\.0)?|-2\.0 WITH LLVM-exception)?",
    r"Apache License Version 2\.0",
    r"PSF(-2\.0)?|Python Software Foundation License|Python-2\.0(\.1)?|CNRI-Python",
    r"MPL-2\.0|Mozilla Public License 2\.0 \(MPL 2\.0\)",
    r"ISC( License \(ISCL\))?|Zlib|HPND|Unlicense|The Unlicense \(Unlicense\)|CC0-1\.0|BSL-1\.0",
    r"LGPL-?\d?.*|GNU Lesser General Public License.*",
    r"OFL-1\.1|bzip2-1\.0\.6|LicenseRef-Matplotlib",
)
"""Permissive, or weak copyleft that linking at run time leaves to the library."""

VENDOR = ("nvidia-", "cuda-")
"""A CUDA build of torch brings its vendor's own, under the vendor's terms."""

KNOWN = {
    "matplotlib": "PSF-2.0",  # its License field is the whole text
    "kiwisolver": "BSD-3-Clause",
}
"""What no field says in a form that can be compared; read by hand."""


def declared():
    """Requirements of our distribution, installed or not."""
    try:
        return metadata.requires("sparse3d-torch") or []
    except metadata.PackageNotFoundError:
        tomllib = pytest.importorskip("tomllib", reason="neither installed nor Python 3.11")
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        found = list(project["dependencies"])
        for extra, lines in project["optional-dependencies"].items():
            for line in lines:
                name, _, marker = line.partition(";")
                condition = f"({marker}) and " if marker else ""
                found.append(f"{name}; {condition}extra == '{extra}'")
        return found


def closure(requirements):
    """Names of everything that these bring, as far as it is installed."""
    seen, queue = {}, [(line, EXTRAS) for line in requirements]
    while queue:
        line, extras = queue.pop()
        wanted = Requirement(line)
        marker = wanted.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in extras):
            continue
        name = canonicalize_name(wanted.name)
        if name in seen:
            continue
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        seen[name] = found
        queue += [(more, ("", *wanted.extras)) for more in found.requires or []]
    return seen


def licences(found):
    """What the metadata names: the expression's parts, the trove classifiers, or the field."""
    name = canonicalize_name(found.metadata["Name"])
    if name in KNOWN:
        return [KNOWN[name]]
    expression = found.metadata.get("License-Expression")
    if expression:
        return re.split(r"\s+(?:AND|OR)\s+", expression.replace("(", "").replace(")", ""))
    classifiers = [
        line.split(" :: ")[-1]
        for line in found.metadata.get_all("Classifier") or []
        if line.startswith("License :: ") and not line.endswith("OSI Approved")
    ]
    return classifiers or [(found.metadata.get("License") or "none stated").strip()]


def allowed(licence):
    return any(re.fullmatch(pattern, licence.strip()) for pattern in ALLOWED)


def test_what_we_bring_has_licences_of_the_list():
    found = closure(declared())
    assert "torch" in found
    assert "numpy" in found
    wrong = {
        name: bad
        for name, dist in found.items()
        if not name.startswith(VENDOR)
        and (bad := [text for text in licences(dist) if not allowed(text)])
    }
    assert not wrong, f"look at these, then add the licence to ALLOWED or drop the package: {wrong}"


REFUSED = (
    "GPL-3.0-only", "AGPL-3.0", "GNU General Public License v3 (GPLv3)", "Proprietary",
    "none stated", "SSPL-1.0", "CC-BY-NC-4.0",
)  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused(name):
    assert not allowed(name)


def test_our_own_licence_is_in_every_place():
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in text
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text("utf-8")
    assert "license: Apache-2.0" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_the_version_is_one_in_every_place():
    import sparse3d

    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == sparse3d.__version__
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"## [{sparse3d.__version__}]" in changes
