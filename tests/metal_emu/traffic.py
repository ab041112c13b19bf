"""What one launch moved, counted by the hooks of a checked build."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bytes:
    """Traffic of one buffer or threadgroup array.

    `read` and `written` count every thread's request. `merged` is `read` with an address counted
    once for the lanes
    of a simdgroup that read it together (a broadcast); no cache is modelled. `touched` counts every
    element once a
    launch, as a perfect cache would fetch it. `atomics` are operations, not bytes.
    """

    space: str
    read: int
    merged: int
    written: int
    atomics: int
    touched: int


@dataclass(frozen=True)
class Traffic:
    """Traffic of one launch. Arithmetic is in scalar multiply-accumulates."""

    kernel: str
    threadgroups: int
    barriers: int
    simd_barriers: int
    simd_macs: int
    fmas: int
    buffers: dict[str, Bytes]

    def total(self, field: str, space: str) -> int:
        """Sum of a field of `Bytes` over "device", "constant" or "threadgroup" memory."""
        return sum(getattr(b, field) for b in self.buffers.values() if b.space == space)

    @property
    def device_bytes(self) -> int:
        """Bytes that threads asked for."""
        return self.total("read", "device") + self.total("written", "device")

    @property
    def device_merged(self) -> int:
        """Bytes with the lanes of a simdgroup merged: requests to the caches."""
        return self.total("merged", "device") + self.total("written", "device")

    @property
    def device_touched(self) -> int:
        """Bytes with every address counted once."""
        return self.total("touched", "device")

    @property
    def device_atomics(self) -> int:
        return self.total("atomics", "device")

    @property
    def threadgroup_bytes(self) -> int:
        return self.total("read", "threadgroup") + self.total("written", "threadgroup")

    @property
    def macs(self) -> int:
        """Multiply-accumulates issued: simdgroup matrices and hand-written fma."""
        return self.simd_macs + self.fmas
