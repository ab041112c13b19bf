"""`sparse3d doctor` and the entry of the command: what they say when something is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from sparse3d import _entry, doctor


def distribution(folder, name, version="1.0", requires=()):
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    (info / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_report_names_versions_devices_and_backends(capsys):
    assert doctor.main() == (1 if doctor.foreign_version() else 0)
    out = capsys.readouterr().out
    for word in (
        "sparse3d", "python", "torch", "devices", "library", "conv_forward", "extras", "advice",
    ):  # fmt: skip
        assert word in out


def test_a_foreign_distribution_is_reported(site, capsys):
    assert doctor.foreign_version() is None
    distribution(site, "sparse3d", "9.9")
    assert doctor.main() == 1
    assert "the distribution sparse3d 9.9 is another project" in capsys.readouterr().out


def test_missing_extras_are_named_with_their_line(site, capsys):
    distribution(
        site,
        "sparse3d-torch",
        requires=[
            "torch>=2.7",
            "pytest; extra == 'one'",
            "not-there-at-all>=3; extra == 'one'",
            "elsewhere; sys_platform == 'plan9' and extra == 'two'",
            "too-old; python_version < '3.5' and extra == 'two'",
        ],
    )
    assert doctor.missing_requirements() == {"one": ["not-there-at-all"]}
    doctor.main()
    out = capsys.readouterr().out
    assert "missing not-there-at-all" in out
    assert "pip install 'sparse3d-torch[one]'" in out


def test_what_the_commands_lack_is_advised(site, capsys):
    distribution(site, "sparse3d-torch", requires=["not-there-at-all; extra == 'cli'"])
    doctor.main()
    out = capsys.readouterr().out
    assert "advice     the commands need not-there-at-all: " in out
    assert "nothing to mend" not in out


def test_a_backend_that_breaks_does_not_stop_the_report(monkeypatch, capsys):
    def broken():
        raise OSError("no such\nthing")

    monkeypatch.setattr("sparse3d.backends", broken)
    doctor.main()
    out = capsys.readouterr().out
    assert "backends   broken, OSError: no such thing" in out
    assert "extras" in out


def test_the_command_says_in_one_line_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(_entry, "EXTRA", ("json", "not_there_at_all"))
    monkeypatch.setattr(sys, "argv", ["sparse3d", "segment", "--demo"])
    assert _entry.main() == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "needs not_there_at_all" in err
    assert "pip install 'sparse3d-torch[cli]'" in err


def test_doctor_needs_no_extra(monkeypatch, capsys):
    monkeypatch.setattr(_entry, "EXTRA", ("not_there_at_all",))
    monkeypatch.setattr(sys, "argv", ["sparse3d", "doctor"])
    assert _entry.main() == 0
    assert "backends" in capsys.readouterr().out


def test_python_m_sparse3d_is_the_command():
    out = subprocess.run(
        [sys.executable, "-m", "sparse3d", "doctor", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "sparse3d doctor" in out.stdout


def test_advice_is_one_line_for_each_thing(site, monkeypatch, tmp_path):
    distribution(site, "sparse3d-torch")
    monkeypatch.setattr(doctor.os, "cpu_count", doctor.torch.get_num_threads)
    monkeypatch.setattr(doctor, "_library_error", lambda: "")
    monkeypatch.setattr(doctor, "NVIDIA_DRIVER", tmp_path / "absent")
    monkeypatch.setattr(doctor.platform, "system", lambda: "Linux")
    assert doctor.advice() == []
    monkeypatch.setattr(doctor, "_library_error", lambda: "no library")
    monkeypatch.setattr(doctor, "NVIDIA_DRIVER", tmp_path)
    monkeypatch.setattr(doctor.torch.version, "cuda", None)
    monkeypatch.setattr(doctor.torch, "__version__", "2.6.1+cpu")
    monkeypatch.setattr(doctor.os, "cpu_count", lambda: 4 * doctor.torch.get_num_threads())
    monkeypatch.setattr(doctor.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(doctor.torch.backends.mps, "is_available", lambda: False)
    lines = doctor.advice()
    words = ("'torch>=2.7'", "C++17 compiler", "a CUDA build", "Apple silicon", "cores")
    assert len(lines) == len(words)
    assert not any("\n" in line for line in lines)
    assert all(any(word in line for line in lines) for word in words)


def test_a_source_tree_is_told_how_to_install(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    assert any("pip install -e" in line for line in doctor.advice())


def test_the_oldest_torch_is_the_one_that_we_ask_for():
    text = (Path(doctor.__file__).parent.parent / "pyproject.toml").read_text("utf-8")
    assert f'"torch>={doctor.OLDEST_TORCH[0]}.{doctor.OLDEST_TORCH[1]}"' in text
