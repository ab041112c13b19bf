"""A confusion table as a picture."""

from __future__ import annotations

import os

import numpy as np

from sparse3d.data.files import atomic
from sparse3d.data.metrics import Confusion

__all__ = ["write_confusion"]


def write_confusion(path: str | os.PathLike[str], table: Confusion) -> None:
    """Write a PNG: a row for each true class, as shares of its points.

    Points whose truth is ignored have no row; a prediction of ignored has a column, since it is a
    miss.
    """
    from matplotlib.figure import Figure

    scored = list(table.scored)
    columns = [*scored, *table.ignore]
    counts = table.counts.T[np.ix_(scored, columns)].astype(np.float64)
    sums = counts.sum(axis=1, keepdims=True)
    share = np.divide(counts, sums, out=np.full_like(counts, np.nan), where=sums > 0)
    figure = Figure(figsize=(9.5, 8), layout="constrained")
    axes = figure.add_subplot()
    axes.set_facecolor("0.93")  # shows where a share is no number
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(columns)), [table.names[i] for i in columns], rotation=60, ha="right")
    axes.set_yticks(range(len(scored)), [table.names[i] for i in scored])
    axes.set_xlabel("predicted")
    axes.set_ylabel("true (grey: no such points)")
    axes.set_title(f"Share of the points of each class; mIoU {table.mean():.4f}", loc="left")
    for row, column in zip(*np.nonzero(np.nan_to_num(share) >= 0.005), strict=True):
        value = share[row, column]
        axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", fontsize=7,
                  color="white" if value > 0.6 else "black")  # fmt: skip
    figure.colorbar(image, shrink=0.7)
    with atomic(path) as file:
        figure.savefig(file, format="png")
