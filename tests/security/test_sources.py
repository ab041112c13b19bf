"""SECURITY.md's promises about our own code, held by reading its syntax trees."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("sparse3d", "models", "tools", "bench")

BANNED = {
    "eval": "runs text",
    "exec": "runs text",
    "compile": "makes code of text",
    "__import__": "imports by a name that data could choose",
    "os.system": "starts a shell",
    "os.popen": "starts a shell",
    "pickle.load": "runs what the file says",
    "pickle.loads": "runs what the bytes say",
    "pickle.Unpickler": "runs what the file says",
    "marshal.loads": "makes code of bytes",
    "shelve.open": "unpickles",
    "yaml.load": "builds any object: use yaml.safe_load",
    "yaml.unsafe_load": "builds any object",
    "shutil.unpack_archive": "writes where the archive says",
    "tempfile.mktemp": "names a file that another may make first",
}
ENDINGS = {".extract": "writes where the archive says", ".extractall": "writes where it says"}


def dotted(node):
    """`a.b.c` of a call's function, or what of it is a name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def given(call, name):
    """The literal that a keyword has, or None."""
    found = [k.value for k in call.keywords if k.arg == name]
    return found[0].value if found and isinstance(found[0], ast.Constant) else None


def faults(source):
    """(line, what is wrong) of every dangerous call."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        ending = "." + name.rpartition(".")[2]
        if name in BANNED:
            yield node.lineno, f"{name} {BANNED[name]}"
        elif "." in name and ending in ENDINGS:
            yield node.lineno, f"{name} {ENDINGS[ending]}"
        elif ending == ".load" and name.startswith("torch.") and not given(node, "weights_only"):
            yield node.lineno, "torch.load must have weights_only=True"
        elif given(node, "allow_pickle"):
            yield node.lineno, f"{name} must not have allow_pickle=True"
        elif given(node, "shell"):
            yield node.lineno, f"{name} must not have shell=True"


def sources():
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_dangerous_call(folder):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in (ROOT / folder).rglob("*.py")
        for line, what in faults(path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(f)",
        "torch.load(f, weights_only=False)",
        "np.load(f, allow_pickle=True)",
        "pickle.loads(b)",
        "subprocess.run(c, shell=True)",
        "os.system(c)",
        "zipfile.ZipFile(f).extractall(d)",
        "archive.extract(m, d)",
        "yaml.load(f)",
        "eval(text)",
    ],
)
def test_the_check_finds_what_it_is_for(line):
    assert len(list(faults(line))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(f, weights_only=True)",
        "np.load(f)",
        "model.eval()",
        "torch.compile(m)",
        "re.compile(p)",
        "subprocess.run([a, b])",
        "yaml.safe_load(f)",
    ],
)
def test_the_check_leaves_the_rest_alone(line):
    assert not list(faults(line))


def test_native_code_is_loaded_where_it_is_known():
    """A library of ours, beside the package or in its file list, NVIDIA's driver and NVRTC; never
    by a name from outside."""
    found = {
        str(path.relative_to(ROOT))
        for path in sources()
        if "CDLL(" in path.read_text("utf-8") and path.parts[-2] != "bench"
    }
    cuda = {"sparse3d/cuda/_driver.py", "sparse3d/cuda/_nvrtc.py"}
    assert found == {"sparse3d/cpu/_library.py"} | cuda
