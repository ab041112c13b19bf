"""What a checkpoint wants to be fed and what its outputs mean: one YAML file."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparse3d.data.inputs import FEATURES
from sparse3d.data.networks import NETWORKS
from sparse3d.data.semantic_kitti import LABEL_MAPS, RAW_NAMES
from sparse3d.data.tables import check_keys, load_yaml
from sparse3d.data.views import View, parse_views

__all__ = ["SegmentConfig", "config_path", "dump_config", "load_config", "parse_config"]

# Not importlib.resources: an editable install spans two folders, and only one has these.
_PACKAGE = Path(__file__).parent.parent
_SECTIONS = (
    "name",
    "weights",
    "network",
    "model",
    "input",
    "classes",
    "label_map",
    "views",
    "average",
    "about",
)
_INPUT = (
    "voxel_size",
    "rounding",
    "representative",
    "features",
    "dtype",
    "clip",
    "outside",
    "thin",
    "devoxelise",
)
_AVERAGES = ("log_probability", "probability")


@dataclass(frozen=True)
class SegmentConfig:
    """A segmentation recipe.

    Attributes:
        name: Short name.
        model: Keyword arguments of the network.
        voxel_size: Edge of a voxel in metres.
        rounding: ``floor`` or ``round``.
        representative: ``first`` point of a voxel, or the ``mean`` of its points; or ``each`` of
            them: a random one in training, and in tests all in turn, in as many passes as the
            fullest voxel has points.
        features: Input channels, by name.
        classes: Raw SemanticKITTI id of each output channel.
        network: ``minkunet`` (`sparse3d.models.minkunet`) or ``spunet`` (`sparse3d.models.spunet`).
        dtype: Arithmetic of the voxel coordinates and, in tests, of the views and the clip.
        views: The looks at a scan, turned differently, whose scores are averaged.
        average: What of a class is averaged over views and passes: its ``log_probability`` or its
            ``probability``.
        clip: Smallest x, y, z and largest x, y, z that the network sees, in metres, or None.
        outside: ``drop`` leaves points beyond ``clip`` out (label 0, a miss); ``clamp`` moves them
            to its border.
        thin: Edge in metres of the cells of which tests see the first point alone; the others have
            its label. 0 sees all.
        devoxelise: ``nearest`` gives a point the scores of its voxel, ``trilinear`` those of the
            voxels around it.
        weights: File of that name in ``sparse3d/weights``, or None.
        about: One line on what the weights are.
    """

    name: str
    model: Mapping[str, Any]
    voxel_size: float
    rounding: str
    representative: str
    features: tuple[str, ...]
    classes: tuple[int, ...]
    dtype: str = "float32"
    views: tuple[View, ...] = (View(),)
    clip: tuple[float, ...] | None = None
    outside: str = "drop"
    devoxelise: str = "nearest"
    weights: str | None = None
    about: str = ""
    network: str = "minkunet"
    average: str = "log_probability"
    thin: float = 0.0

    def weights_path(self) -> Path | None:
        """Where the weights that ship with the package lie."""
        if self.weights is None:
            return None
        return _PACKAGE / "weights" / self.weights


def load_config(source: str | os.PathLike[str]) -> SegmentConfig:
    """Read a recipe.

    Args:
        source: A YAML file, or the name of one in ``sparse3d/configs`` without its ending.

    Raises:
        ValueError: The recipe is missing, no YAML, or has wrong or unknown entries; one line.
    """
    path = config_path(source)
    table = load_yaml(path)
    try:
        return parse_config(table, path)
    except TypeError as error:
        raise ValueError(
            f"{path}: entries must be of the kinds of a recipe, got: {error}"
        ) from None


def config_path(source: str | os.PathLike[str]) -> Path:
    """The file of a recipe or training config: itself, or by its name in ``sparse3d/configs``.

    Raises:
        ValueError: There is none of that name; the nearest one is named.
    """
    path = Path(source)
    if path.suffix and not _is(path, Path.is_dir):
        return path
    folder = _PACKAGE / "configs"
    named = folder / f"{source}.yaml"
    if _is(named, Path.is_file):
        return named
    if _is(path, Path.is_dir):
        raise ValueError(f"{source}: must be a YAML file, got a folder; name a file in it")
    if _is(path, Path.is_file):
        return path
    names = sorted(entry.stem for entry in folder.glob("*.yaml"))
    near = difflib.get_close_matches(str(source), names, 1)
    way = f"write {near[0]}" if near else f"there are {', '.join(names)}"
    raise ValueError(
        f"{source}: must be a YAML file or the name of one in the package, got neither; {way}"
    )


def _is(path: Path, kind: Callable[[Path], bool]) -> bool:
    """Whether there is one of that kind; no system has names that are too long for it."""
    try:
        return kind(path)
    except (OSError, ValueError):
        return False


def parse_config(table: Mapping[str, Any], path: Path) -> SegmentConfig:
    """A recipe from its table; ``path`` is where it came from, for messages."""
    check_keys(table, _SECTIONS, path)
    feed = _table(table, "input", path)
    check_keys(feed, _INPUT, path, "input.")
    features = _features(feed, path)
    size = _metres(feed, "voxel_size", path)
    representative = _choice(feed, "representative", ("first", "mean", "each"), path)
    network = _choice({"network": "minkunet", **table}, "network", tuple(NETWORKS), path)
    model, classes = _table(table, "model", path), _classes(table, path)
    _check_count(model, network, "num_classes", len(classes), "classes", path)
    _check_count(model, network, "in_channels", len(features), "input.features", path)
    return SegmentConfig(
        name=str(table.get("name", path.stem)),
        model=model,
        voxel_size=size,
        rounding=_choice(feed, "rounding", ("floor", "round"), path),
        representative=representative,
        features=features,
        classes=classes,
        network=network,
        dtype=_choice({"dtype": "float32", **feed}, "dtype", ("float32", "float64"), path),
        views=parse_views(table.get("views", 1), path),
        average=_choice({"average": _AVERAGES[0], **table}, "average", _AVERAGES, path),
        clip=_clip(feed, path),
        outside=_outside(feed, path),
        thin=_metres(feed, "thin", path) if feed.get("thin", 0) != 0 else 0.0,
        devoxelise=_devoxelise(feed, representative, path),
        weights=_file_name(table.get("weights"), path),
        about=str(table.get("about", "")),
    )


def dump_config(config: SegmentConfig) -> str:
    """A recipe as YAML that `load_config` reads to the same; weights that ship are not named."""
    import yaml  # an extra

    feed: dict[str, Any] = {name: getattr(config, name) for name in _INPUT}
    feed |= {"features": list(config.features), "clip": list(config.clip) if config.clip else None}
    table = {
        "name": config.name,
        "network": config.network,
        "model": dict(config.model),
        "input": feed,
        "views": [dict(vars(view)) for view in config.views],
        "average": config.average,
        "classes": list(config.classes),
        "about": config.about,
    }
    text: str = yaml.safe_dump(table, sort_keys=False)
    return text


def _features(feed: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """Input channels by name, at least one."""
    features = feed.get("features", [])
    listed = features if isinstance(features, list) else [features]
    unknown = [name for name in listed if name not in FEATURES]
    if unknown or not listed or listed is not features:
        raise ValueError(
            f"{path}: input.features must come from {list(FEATURES)}, as a list, "
            f"got {unknown or features!r}"
        )
    return tuple(listed)


def _check_count(
    model: Mapping[str, Any], network: str, key: str, count: int, what: str, path: Path
) -> None:
    """Refuse a network that is not as wide as the entries at its end say."""
    default = inspect.signature(NETWORKS[network].build).parameters[key].default
    if default is inspect.Parameter.empty:
        default = None
    value = model.get(key, default)
    if type(value) is not int or value != count:
        got = "none" if value is None else repr(value)
        raise ValueError(
            f"{path}: model.{key} must be {count}, the number of {what}, got {got}; "
            f"write {key}: {count}, or change {what}"
        )


def _classes(table: Mapping[str, Any], path: Path) -> tuple[int, ...]:
    """Raw ids by output channel: listed, or all 19 (or 20) of a label map."""
    if "classes" in table:
        if "label_map" in table:
            raise ValueError(
                f"{path}: label_map must be left out beside classes, got {table['label_map']!r}"
            )
        classes = table["classes"]
        if not isinstance(classes, list) or not classes:
            raise ValueError(
                f"{path}: classes must be a list of SemanticKITTI raw ids, got {classes!r}"
            )
        bad = [raw for raw in classes if type(raw) is not int or raw not in RAW_NAMES]
        if bad:
            raise ValueError(f"{path}: classes must be SemanticKITTI raw ids, got {bad}")
        return tuple(classes)
    name = table.get("label_map", "official")
    if name not in LABEL_MAPS:
        raise ValueError(f"{path}: label_map must be one of {list(LABEL_MAPS)}, got {name!r}")
    inverse = LABEL_MAPS[name].inverse
    channels = _table(table, "model", path).get("num_classes", 19)
    if channels == len(inverse):
        return inverse
    if channels == len(inverse) - 1:
        return inverse[1:]
    raise ValueError(f"{path}: classes must be listed for num_classes = {channels}")


def _file_name(name: Any, path: Path) -> str | None:
    """A file that lies in the package's folder of weights, and nowhere else."""
    if name is not None and (not isinstance(name, str) or Path(name).name != name):
        raise ValueError(f"{path}: weights must be the plain name of a file, got {name!r}")
    return name


def _table(table: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    value = table.get(key)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: {key} must be a table, got {type(value).__name__}")
    return value


def _choice(table: Mapping[str, Any], key: str, choices: tuple[str, ...], path: Path) -> str:
    value = table.get(key)
    if value not in choices:
        raise ValueError(f"{path}: {key} must be one of {list(choices)}, got {value!r}")
    return str(value)


def _metres(feed: Mapping[str, Any], key: str, path: Path) -> float:
    size = feed.get(key)
    if not isinstance(size, (int, float)) or isinstance(size, bool) or not 0 < size < 100:
        raise ValueError(
            f"{path}: input.{key} must be a number of metres above 0 and below 100, got {size!r}"
        )
    return float(size)


def _devoxelise(feed: Mapping[str, Any], representative: str, path: Path) -> str:
    """How points get their scores; those that each stand for a voxel have them already."""
    how = _choice({"devoxelise": "nearest", **feed}, "devoxelise", ("nearest", "trilinear"), path)
    if representative == "each" and how != "nearest":
        raise ValueError(
            f"{path}: input.devoxelise must be nearest for input.representative each, got {how!r}"
        )
    return how


def _clip(feed: Mapping[str, Any], path: Path) -> tuple[float, ...] | None:
    """Bounds ``(x, y, z, x, y, z)``, lower ones first."""
    if feed.get("clip") is None:
        return None
    box = feed["clip"]
    good = isinstance(box, list) and len(box) == 6
    good = good and all(isinstance(v, int | float) and not isinstance(v, bool) for v in box)
    if not good or any(low >= high for low, high in zip(box[:3], box[3:], strict=True)):
        raise ValueError(
            f"{path}: input.clip must be six metres, smallest x, y, z then largest, got {box!r}"
        )
    return tuple(float(v) for v in box)


def _outside(feed: Mapping[str, Any], path: Path) -> str:
    """What becomes of points beyond the clip; only the default where there is none."""
    outside = _choice({"outside": "drop", **feed}, "outside", ("drop", "clamp"), path)
    if outside != "drop" and feed.get("clip") is None:
        raise ValueError(
            f"{path}: input.outside must be left out without input.clip, got {outside!r}"
        )
    return outside
