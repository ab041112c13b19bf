"""Files of weights, opened without running anything in them."""

from __future__ import annotations

import io
import pickletools
import threading
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import _check
from .._atomic import atomic

PathLike = str | Path
State = Mapping[str, torch.Tensor]
_WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights")

_PICKLES = 2**24  # bytes of a file in the form before 1.6 that are looked at


def read(file: PathLike | State) -> dict[str, torch.Tensor]:
    """Tensors of a checkpoint by name.

    Args:
        file: `.safetensors`, or what `torch.save` wrote: a state_dict, also inside `state_dict`,
            `model` and the like; or a mapping that is one. Other objects in the file are left out,
            never built; a file in torch's format before 1.6 may hold none.

    Raises:
        ValueError: if the file cannot be read without running code, or holds no tensors by name.
        ModuleNotFoundError: if a `.safetensors` file is given and safetensors is not installed.
    """
    return read_marked(file)[0]


def read_marked(file: PathLike | State) -> tuple[dict[str, torch.Tensor], str | None]:
    """What `read` gives, and the layout of its kernels where the file says it is ours."""
    if isinstance(file, Mapping):
        return _unwrapped(file, "state"), _mark(file)
    path = Path(file)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            # A pipe keeps its readers waiting, and /dev/zero has no end.
            _check.fail(str(path), "a regular file", "a device or pipe")
        table = _opened(path)
        found = _unwrapped(table, str(path))
        _check_size(path, found)
        return found, _mark(table)
    except OSError as error:
        raise ValueError(
            f"{path} must be a readable file, got: {error.strerror or error}"
        ) from None


_OURS = (
    {"model", "config", "step", "miou"},  # best.pt and model.pt of `sparse3d train`
    {"model", "fast", "optimizer", "key", "step", "format"},  # last.pt
)


def _mark(table: Any) -> str | None:
    """The layout of a file of ours: by its mark, or by the entries of files before there was one.

    Tensors at the top are a bare state_dict, whatever its names.
    """
    if not isinstance(table, Mapping) or not isinstance(table.get("model"), Mapping):
        return None
    ours = table.get("library") == "sparse3d" or any(keys <= set(table) for keys in _OURS)
    return "spconv" if ours else None


def _opened(path: Path) -> Any:
    """What the file holds; whatever its bytes make the readers do becomes one ValueError."""
    if path.is_file() and path.stat().st_size == 0:
        _check.fail(str(path), "a file of weights", "an empty one (0 bytes)", "copy it again")
    reader = _safetensors() if path.suffix == ".safetensors" else None
    try:
        if reader is not None:
            return reader.load_file(str(path))
        _refuse_packed(path)
        return _without_objects(path)
    except OSError:
        raise
    except Exception as error:
        if _is_cut(path, error):
            raise ValueError(
                f"{path} must be a whole file of weights, got one of {path.stat().st_size} bytes "
                "that is cut off, or no checkpoint; copy it again"
            ) from None
        kind = "safetensors" if reader is not None else "weights saved by torch"
        raise ValueError(
            f"{path} must be a file of {kind} that holds tensors only, got another "
            "kind of file, or one that would run code when opened; save the state_dict alone"
        ) from None


def _is_cut(path: Path, error: Exception) -> bool:
    """Whether a file that cannot be read begins as weights do and lacks its end."""
    words = str(error)
    if path.suffix == ".safetensors":
        return any(w in words for w in ("header too small", "invalid header length", "incomplete"))
    with path.open("rb") as file:
        start = file.read(min(_PICKLES, path.stat().st_size))  # what is asked for is allocated
    if start[:4] == b"PK\x03\x04":
        try:
            return not zipfile.is_zipfile(path)
        except zipfile.BadZipFile:  # it has an end, of which zipfile makes nothing
            return False
    ended = isinstance(error, EOFError) or "unexpected EOF" in words
    return start[:1] == b"\x80" and (ended or (len(start) < _PICKLES and _lacks_end(start)))


def _lacks_end(pickles: bytes) -> bool:
    """Whether the bytes stop within a pickle; they are looked at, not run."""
    stream = io.BytesIO(pickles)
    try:
        while stream.tell() < len(pickles):
            for _ in pickletools.genops(stream):
                pass
    except ValueError as error:
        return any(word in str(error) for word in ("exhausted", "remain", "newline"))
    return False


class _Inert:
    """Stands for any object beside the weights: takes what the file gives it, does nothing."""

    __slots__ = ()

    def __new__(cls, *_: object, **__: object) -> _Inert:
        return object.__new__(cls)

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __setstate__(self, _: object) -> None:
        pass


_READING = threading.Lock()  # what torch is told to let pass holds for the process


def _without_objects(path: Path) -> Any:
    """What torch wrote, each class and function that it would refuse replaced by `_Inert`."""
    if not zipfile.is_zipfile(path):
        with _READING, warnings.catch_warnings():
            # Another protocol than torch's own is no fault of whoever opens the file.
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            return torch.load(path, map_location="cpu", weights_only=True)
    with _READING:
        foreign = torch.serialization.get_unsafe_globals_in_checkpoint(str(path))
        stood_for: list[Any] = [(_Inert, name) for name in foreign]
        with torch.serialization.safe_globals(stood_for):
            return torch.load(path, map_location="cpu", weights_only=True)


def _refuse_packed(path: Path) -> None:
    """Torch stores its entries as they are; packed ones could grow a thousandfold."""
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > path.stat().st_size:
        _check.fail(str(path), "an archive of unpacked entries", f"{unpacked} bytes in them")


def _check_size(path: Path, found: State) -> None:
    """Refuse views that repeat few bytes: made dense, they could take any memory."""
    whole = sum(tensor.numel() * tensor.element_size() for tensor in found.values())
    stored = path.stat().st_size
    if whole > 4 * stored:
        _check.fail(str(path), f"tensors of the {stored} bytes in it", f"{whole} bytes of them")


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError:
        message = "safetensors must be installed for .safetensors files; pip install safetensors"
        raise ModuleNotFoundError(message) from None
    return safetensors.torch


def _unwrapped(table: Any, name: str) -> dict[str, torch.Tensor]:
    seen: set[int] = set()
    while isinstance(table, Mapping) and id(table) not in seen:
        seen.add(id(table))
        inner = next((table[k] for k in _WRAPPERS if isinstance(table.get(k), Mapping)), None)
        if inner is None:
            break
        table = inner
    if not isinstance(table, Mapping):
        _check.fail(name, "tensors by name", type(table).__name__)
    found = {k: v for k, v in table.items() if isinstance(k, str) and isinstance(v, torch.Tensor)}
    if not found:
        _check.fail(name, "tensors by name", f"{len(table)} entries, none of them one")
    for key, tensor in found.items():
        _check_plain(f"{name}: {key}", tensor)
    return found


def _check_plain(name: str, tensor: torch.Tensor) -> None:
    """Dense, with values: what a layer could hold."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        _check.fail(name, "a dense tensor with values", f"{tensor.layout} on {tensor.device}")


def _unshared(state: State) -> dict[str, torch.Tensor]:
    """Tensors that share no memory, which the format cannot write."""
    seen: set[int] = set()
    made = {}
    for name, tensor in state.items():
        shared = tensor.untyped_storage().data_ptr() in seen
        seen.add(tensor.untyped_storage().data_ptr())
        made[name] = tensor.clone().contiguous() if shared else tensor.contiguous()
    return made


def save(model: nn.Module | State, file: PathLike) -> None:
    """Write a model's state_dict, or tensors by name, as `.safetensors` or by `torch.save`.

    The file appears whole or not at all. Tensors that share memory are written once each in a
    `.safetensors`.

    Raises:
        OSError: if it cannot be written.
    """
    state = model.state_dict() if isinstance(model, nn.Module) else dict(model)
    path = Path(file)
    if path.suffix == ".safetensors":
        whole = _safetensors().save(_unshared(state))
        with atomic(path) as out:
            out.write(whole)
        return
    with atomic(path) as out:
        torch.save(state, out)
