"""`spconv.tools`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

__all__ = ["CUDAKernelTimer"]


class CUDAKernelTimer:
    """Kept on tensors for the peer's code; it times nothing, `torch.profiler` does."""

    def __init__(self, enable: bool = True) -> None:
        self.enable = enable

    def namespace(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def record(self, name: str, stream: int = 0) -> AbstractContextManager[None]:
        return nullcontext()

    def get_all_pair_time(self) -> dict[str, float]:
        """Milliseconds by name: none."""
        return {}

    @staticmethod
    def collect_by_name(name: str, res: dict[str, float]) -> dict[str, float]:
        """Entries with `name` among the dotted parts of their names."""
        return {key: value for key, value in res.items() if name in key.split(".")}
