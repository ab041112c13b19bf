"""The peer's tuner: accepted, as kernels are chosen from measured constants here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

__all__ = ["tune"]


def tune(
    model: nn.Module,
    data_loader: Iterable[Any],
    n_samples: int = 100,
    collect_fn: Callable[..., Any] = lambda data: data,
    enable_fp16: bool = False,
    save_dir: str = ".torchsparse-tune",
    tune_tag: str = "temp",
    force_retune: bool = False,
    dataflow_range: Any = None,
    dataflow_prune: bool = False,
    tune_with_bwd: bool = False,
    verbose: bool = True,
    skip_warning: bool = False,
) -> None:
    """Run the model on the first sample, so that faults show now; nothing is tuned or written.

    Args:
        model: to run.
        data_loader: of samples.
        n_samples: accepted, as what follows.
        collect_fn: makes the model's input of a sample.
        enable_fp16: see `n_samples`.
        save_dir: see `n_samples`.
        tune_tag: see `n_samples`.
        force_retune: see `n_samples`.
        dataflow_range: see `n_samples`.
        dataflow_prune: see `n_samples`.
        tune_with_bwd: see `n_samples`.
        verbose: see `n_samples`.
        skip_warning: see `n_samples`.
    """
    training = model.training
    model.eval()
    with torch.no_grad():
        for sample in data_loader:
            model(collect_fn(sample))
            break
    model.train(training)
