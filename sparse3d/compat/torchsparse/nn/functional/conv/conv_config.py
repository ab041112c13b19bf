"""Modes and configurations: accepted and kept; those that choose sites are honoured."""

from __future__ import annotations

from enum import Enum
from typing import Any

from ...... import _check

__all__ = [
    "ConvMode",
    "Dataflow",
    "clear_global_conv_config",
    "get_conv_mode",
    "get_default_conv_config",
    "get_downsample_mode",
    "get_global_conv_config",
    "get_kmap_mode",
    "set_conv_mode",
    "set_downsample_mode",
    "set_global_conv_config",
    "set_kmap_mode",
]

KMAP_MODES = ("hashmap_on_the_fly", "hashmap")
DOWNSAMPLE_MODES = ("spconv", "minkowski")


class Dataflow(Enum):
    """Accepted; the backend chooses."""

    ImplicitGEMM = 0
    GatherScatter = 1
    FetchOnDemand = 2
    CodedCSR = 3


class ConvMode(Enum):
    """Accepted; the backend chooses."""

    mode0 = 0
    mode1 = 1
    mode2 = 2


class AttributeDict(dict[str, Any]):
    """A dictionary whose entries are attributes too."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def copy(self) -> AttributeDict:
        """Another of the same entries."""
        return AttributeDict(self)


class _Global:
    """The peer's interface keeps these for the whole process."""

    config: Any = None
    conv_mode = ConvMode.mode0


# By the peer's name: callers copy it, and some write to it.
_default_conv_config = AttributeDict(
    dataflow=Dataflow.ImplicitGEMM,
    ifsort=False,
    kmap_mode="hashmap_on_the_fly",
    downsample_mode="spconv",
    split_mask_num=1,
    split_mask_num_bwd=3,
    epsilon=0.0,
    mm_thresh=0,
    FOD_fusion=True,
)


def get_default_conv_config(
    conv_mode: ConvMode = ConvMode.mode0, training: bool = False
) -> AttributeDict:
    """The peer's defaults, with the modes that are set."""
    made = _default_conv_config.copy()
    if conv_mode != ConvMode.mode0:
        made.ifsort = True
    if conv_mode == ConvMode.mode2:
        made.split_mask_num = 3
    return made


def get_global_conv_config() -> Any:
    """The configuration of all layers, or None."""
    return _Global.config


def set_global_conv_config(conv_config: Any) -> None:
    """Set the configuration of all layers; what is left out takes its default."""
    _Global.config = AttributeDict({**get_default_conv_config(), **conv_config})


def clear_global_conv_config() -> None:
    """Forget the configuration of all layers."""
    _Global.config = None


def get_conv_mode() -> ConvMode:
    """The mode of all layers."""
    return _Global.conv_mode


def set_conv_mode(conv_mode: ConvMode | int) -> None:
    """Set the mode of all layers."""
    _Global.conv_mode = ConvMode(conv_mode) if isinstance(conv_mode, int) else conv_mode


def get_kmap_mode() -> str:
    """How kernel maps are built in the peer."""
    made: str = _default_conv_config.kmap_mode
    return made


def set_kmap_mode(kmap_mode: str) -> None:
    """Set how kernel maps are built in the peer; here it tells only where the kernel is the stride:
    "hashmap" keeps every cell that a site lies in."""
    if kmap_mode not in KMAP_MODES:
        _check.fail("kmap_mode", f"one of {KMAP_MODES}", repr(kmap_mode))
    _default_conv_config.kmap_mode = kmap_mode


def get_downsample_mode() -> str:
    """Which sites strided layers make."""
    made: str = _default_conv_config.downsample_mode
    return made


def set_downsample_mode(downsample_mode: str) -> None:
    """Set which sites strided layers make: all reached ("spconv"), or floors ("minkowski")."""
    if downsample_mode not in DOWNSAMPLE_MODES:
        _check.fail("downsample_mode", f"one of {DOWNSAMPLE_MODES}", repr(downsample_mode))
    _default_conv_config.downsample_mode = downsample_mode


def resolved(config: Any) -> AttributeDict:
    """A layer's configuration: its own, the global one, or the defaults."""
    if config is None:
        config = _Global.config
    made = get_default_conv_config(_Global.conv_mode)
    if config is not None:
        made.update({k: v for k, v in dict(config).items() if v is not None})
    return made
