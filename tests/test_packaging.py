"""What the wheel, the sdist and the editable install hold: lists quickly, builds nightly."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata, resources
from pathlib import Path

import pytest

from sparse3d import _registry

ROOT = Path(__file__).parent.parent
LIBRARY = "sparse3d/cpu/libsparse3d_cpu.so"
PROBE = """
import importlib.resources as r, pathlib, sparse3d, sparse3d.models
root = r.files("sparse3d")
assert (root / "py.typed").is_file()
assert [f for f in (root / "configs").iterdir() if f.name.endswith(".yaml")], "no configs"
assert (root / "weights").is_dir()
from sparse3d.cpu import _library
print(_library.library._name)
print(pathlib.Path(sparse3d.__file__).parent)
"""


def tracked(pattern=""):
    out = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *pattern.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if out.returncode:
        pytest.skip("not a git checkout: which files belong to the project is not known")
    return [ROOT / line for line in out.stdout.splitlines() if (ROOT / line).exists()]


# ---- quick


def test_coverage_leaves_cuda_out_in_every_process(tmp_path):
    """Patterns are read from the folder of a process, and tests start some elsewhere."""
    pytest.importorskip("coverage")
    child = [sys.executable, "-c", "import sparse3d.cuda"]
    program = tmp_path / "program.py"
    program.write_text(
        f"import subprocess; subprocess.run({child}, cwd={str(tmp_path)!r}, check=True)"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    env["COVERAGE_FILE"] = str(tmp_path / "data")
    for arguments in (["run", program], ["combine", "-q"], ["report", "--fail-under=0"]):
        made = subprocess.run(
            [sys.executable, "-m", "coverage", *arguments],
            cwd=ROOT, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert made.returncode == 0, made.stdout + made.stderr
    assert "sparse3d/_registry.py" in made.stdout
    assert "sparse3d/cuda/" not in made.stdout


def test_links_are_relative_and_point_at_the_root_folders():
    for name in ("models", "configs"):
        link = ROOT / "sparse3d" / name
        assert link.readlink() == Path("..") / name
        assert link.resolve() == ROOT / name


def test_package_data_is_reachable_from_the_imported_package():
    root = resources.files("sparse3d")
    assert (root / "py.typed").is_file()
    assert any(entry.name.endswith(".yaml") for entry in (root / "configs").iterdir())
    assert (root / "weights").is_dir()


def test_every_shipped_file_is_small_and_of_a_known_kind():
    kinds = set("cpp css h html inc js json md metal npz pt py typed yaml".split())  # noqa: SIM905
    for file in tracked("sparse3d models configs"):
        if file.is_dir() or file.name in ("CMakeLists.txt", ".clang-format"):
            continue  # a link, or a tool's own file
        assert file.suffix[1:] in kinds, f"{file}: say in pyproject.toml and here that it ships"
        assert file.stat().st_size <= 2 * 2**20, f"{file} is larger than 2 MB"


def test_version_agrees_with_the_installed_distribution():
    import sparse3d

    try:
        assert metadata.version("sparse3d-torch") == sparse3d.__version__
    except metadata.PackageNotFoundError:
        pytest.skip("the source tree is not installed")


def test_the_library_is_compiled_where_it_must_be():
    """A build that fails falls back to plain Python in silence; here it must not."""
    if not list((ROOT / "sparse3d/cpu/csrc").glob("*.cpp")):
        pytest.skip("csrc has no sources")
    reason = _registry.load("cpu")
    if reason and "CI" not in os.environ:
        pytest.skip(f"{reason} (make setup, or make library)")
    assert reason is None


# ---- nightly: real builds in throw-away environments


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the project's files, links kept."""
    tree = tmp_path_factory.mktemp("packaging") / "tree"
    for file in tracked():
        to = tree / file.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, to, follow_symlinks=False)
    return tree


@pytest.fixture
def environment(tmp_path):
    """A venv that sees this one's torch and tools, but neither sparse3d nor the cli extra."""
    hidden = (
        "sparse3d", "_editable", "__editable__", "__pycache__", "typer", "rich", "matplotlib",
        "mpl_toolkits", "yaml", "_yaml", "pyyaml", "PyYAML", "onnx",
    )  # fmt: skip
    seen = tmp_path / "seen"
    seen.mkdir()
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not entry.name.startswith(hidden) and entry.suffix != ".pth":
            (seen / entry.name).symlink_to(entry)
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    purelib = next((tmp_path / "venv/lib").glob("python*/site-packages"))
    (purelib / "seen.pth").write_text(f"{seen}\n")
    return tmp_path / "venv"


def run(*command, cwd, check=True, **variables):
    out = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or out.returncode == 0, out.stdout + out.stderr
    return out


def pip(environment, *arguments, cwd, **variables):
    return run(
        environment / "bin/python", "-m", "pip", "-q", "--disable-pip-version-check", *arguments,
        cwd=cwd, **variables,
    )  # fmt: skip


def probe(environment, cwd):
    """Paths of the loaded library and of the imported package."""
    out = run(environment / "bin/python", "-c", PROBE, cwd=cwd).stdout.split()
    return Path(out[0]), Path(out[1])


@pytest.fixture(scope="module")
def wheel(tree):
    dist = tree.parent / "dist"
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", dist, tree, cwd=tree.parent)
    (wheel,) = dist.glob("*.whl")
    return wheel


@pytest.mark.nightly
def test_wheel(wheel, environment, tmp_path):
    assert "-py3-none-" in wheel.name
    assert "none-any" not in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    assert LIBRARY in names
    assert not {name for name in names if "csrc" in name or not name.startswith("sparse3d")}
    for file in tracked("sparse3d models configs"):
        path = file.relative_to(ROOT)
        if not file.is_dir() and "csrc" not in path.parts and file.name != ".clang-format":
            inside = path if path.parts[0] == "sparse3d" else Path("sparse3d") / path
            assert str(inside) in names
    pip(environment, "install", "--no-deps", wheel, cwd=tmp_path)
    library, package = probe(environment, tmp_path)
    assert package.is_relative_to(environment)
    assert library.is_relative_to(environment)


@pytest.mark.nightly
def test_sdist(tree, environment, tmp_path):
    build = "from scikit_build_core.build import build_sdist as b; b(__import__('sys').argv[1])"
    pip(environment, "install", "scikit-build-core", cwd=tmp_path)
    run(environment / "bin/python", "-c", build, tmp_path / "dist", cwd=tree)
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    pip(environment, "install", "--no-deps", sdist, cwd=tmp_path)
    library, package = probe(environment, tmp_path)
    assert package.is_relative_to(environment)
    assert library.is_relative_to(environment)


@pytest.mark.nightly
def test_editable(tree, environment, tmp_path):
    pip(environment, "install", "--no-deps", "-e", tree, cwd=tmp_path)
    library, package = probe(environment, tmp_path)
    assert package == tree / "sparse3d"
    assert library.is_relative_to(environment)
    late = tree / "models/late.py"
    late.write_text("VALUE = 3\n")
    out = run(
        environment / "bin/python", "-c", "import sparse3d.models.late as m; print(m.VALUE)",
        cwd=tmp_path,
    )  # fmt: skip
    late.unlink()
    assert out.stdout == "3\n"


@pytest.mark.nightly
@pytest.mark.parametrize("module_first", [False, True], ids=["pytest", "python -m pytest"])
def test_pytest_from_the_root_against_an_installed_package(
    tree, wheel, environment, tmp_path, module_first
):
    pip(environment, "install", "--no-deps", wheel, cwd=tmp_path)
    seen = tree / "tests/test_seen.py"
    seen.write_text(f"def test_seen():\n    exec({PROBE!r})\n")
    command = ["-m", "pytest"] if module_first else ["-c", "import pytest; pytest.console_main()"]
    if not module_first:  # as the console script does: the current folder is not on the path
        command = ["-P", *command] if sys.version_info >= (3, 11) else ["-I", *command]
    try:
        out = run(environment / "bin/python", *command, "-s", seen, cwd=tree)
    finally:
        seen.unlink()
    assert "1 passed" in out.stdout
    package = tree if module_first else environment
    assert any(
        line.endswith("/sparse3d") and Path(line.strip(".")).is_relative_to(package)
        for line in out.stdout.splitlines()
    )
    assert str(environment) in out.stdout  # the library, in both


@pytest.mark.nightly
def test_mypy_sees_the_models(tree, tmp_path):
    wrong = tree / "models/wrong.py"
    wrong.write_text("def f(x: int) -> str:\n    return x\n")
    out = run(
        sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "cache", cwd=tree, check=False
    )
    wrong.unlink()
    assert "models/wrong.py:2: error" in out.stdout


@pytest.mark.nightly
def test_without_a_compiler(tree, environment, tmp_path):
    pip(environment, "install", "--no-deps", tree, cwd=tmp_path, CXX="/nonexistent/c++")
    out = run(environment / "bin/sparse3d", "doctor", cwd=tmp_path)
    assert "not loaded" in out.stdout


@pytest.mark.nightly
def test_without_the_cli_extra(wheel, environment, tmp_path):
    pip(environment, "install", "--no-deps", wheel, cwd=tmp_path)
    out = run(environment / "bin/sparse3d", "segment", "--demo", cwd=tmp_path, check=False)
    assert out.returncode == 2
    assert out.stdout == ""
    assert out.stderr.count("\n") == 1
    assert "pip install 'sparse3d-torch[cli]'" in out.stderr


@pytest.mark.nightly
def test_the_wheel_alone_imports_runs_layers_and_tells_what_it_can_do(wheel, environment, tmp_path):
    pip(environment, "install", wheel, cwd=tmp_path)
    out = run(environment / "bin/python", ROOT / "tests/installed.py", cwd=tmp_path)
    assert "all right" in out.stdout
    report = run(environment / "bin/python", "-m", "sparse3d", "doctor", cwd=tmp_path).stdout
    assert "library    " in report
    assert "not loaded" not in report
    for extra in ("cli", "onnx"):
        assert f"'sparse3d-torch[{extra}]'" in report


@pytest.mark.nightly
def test_the_wheel_with_its_command_line_labels_a_street(wheel, environment, tmp_path):
    pip(environment, "install", f"{wheel}[cli]", cwd=tmp_path)
    run(environment / "bin/sparse3d", "segment", "--demo", "--out", "out", cwd=tmp_path)
    assert {".label", ".ply", ".png"} <= {file.suffix for file in (tmp_path / "out").iterdir()}


@pytest.mark.nightly
@pytest.mark.parametrize("compiler", [None, "/nonexistent/c++"], ids=["compiler", "no compiler"])
def test_the_sdist_runs_layers_with_and_without_a_compiler(tree, environment, tmp_path, compiler):
    build = "from scikit_build_core.build import build_sdist as b; b(__import__('sys').argv[1])"
    run(sys.executable, "-c", build, tmp_path / "dist", cwd=tree)
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    variables = {} if compiler is None else {"CXX": compiler}
    pip(environment, "install", sdist, cwd=tmp_path, **variables)
    out = run(environment / "bin/python", ROOT / "tests/installed.py", cwd=tmp_path)
    assert "all right" in out.stdout
    report = run(environment / "bin/sparse3d", "doctor", cwd=tmp_path).stdout
    assert ("not loaded" in report) == (compiler is not None)
