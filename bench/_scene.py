"""The simulated 64-beam street scan on which the GPU benches and the peers' figures were measured."""

import numpy as np
import torch

CLASSES = ["ground", "building", "car", "vegetation", "pole", "person"]


def scan(seed=0, beams=64, azimuths=2048, noise=0.01):
    rng = np.random.default_rng(seed)
    el = np.deg2rad(np.linspace(2.0, -24.8, beams))
    az = np.linspace(-np.pi, np.pi, azimuths, endpoint=False)
    el, az = np.meshgrid(el, az, indexing="ij")
    d = np.stack([np.cos(el) * np.cos(az), np.cos(el) * np.sin(az), np.sin(el)], -1).reshape(-1, 3)
    best = np.full(len(d), 120.0)
    lab = np.full(len(d), -1)
    h = 1.73
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -h / d[:, 2]
        hit = (d[:, 2] < 0) & (t < best)
        best[hit], lab[hit] = t[hit], 0

        def box(lo, hi, cls):
            nonlocal best, lab
            t0, t1 = np.asarray(lo) / d, np.asarray(hi) / d
            tn = np.minimum(t0, t1).max(1)
            tf = np.maximum(t0, t1).min(1)
            hit = (tn > 0.5) & (tn <= tf) & (tn < best)
            best[hit], lab[hit] = tn[hit], cls

        def cyl(cx, cy, r, z0, z1, cls):
            nonlocal best, lab
            a = d[:, 0] ** 2 + d[:, 1] ** 2
            b = -(d[:, 0] * cx + d[:, 1] * cy)
            c = cx * cx + cy * cy - r * r
            disc = b * b - a * c
            t = (-b - np.sqrt(np.maximum(disc, 0))) / a
            z = t * d[:, 2]
            hit = (disc > 0) & (t > 0.5) & (z > z0) & (z < z1) & (t < best)
            best[hit], lab[hit] = t[hit], cls

        def ball(c, r, cls):
            nonlocal best, lab
            c = np.asarray(c)
            b = d @ c
            disc = b * b - (c @ c - r * r)
            t = b - np.sqrt(np.maximum(disc, 0)) + rng.normal(0, 0.25, len(d))
            hit = (disc > 0) & (t > 0.5) & (t < best)
            best[hit], lab[hit] = t[hit], cls

        for side in (-1, 1):
            x = -80.0
            while x < 80:
                w, gap = rng.uniform(8, 22), rng.uniform(0, 6)
                y = side * rng.uniform(9, 16)
                box(
                    [x, min(y, y + side * 10), -h],
                    [x + w, max(y, y + side * 10), rng.uniform(3, 14)],
                    1,
                )
                x += w + gap
            for _ in range(16):
                x, y = rng.uniform(-60, 60), side * rng.uniform(3.2, 6.5)
                box([x, y - 0.9, -h], [x + 4.2, y + 0.9, -h + 1.5], 2)
            for _ in range(14):
                cyl(
                    rng.uniform(-60, 60),
                    side * rng.uniform(6.5, 8.5),
                    0.12,
                    -h,
                    rng.uniform(3, 6),
                    4,
                )
            for _ in range(8):
                cyl(rng.uniform(-30, 30), side * rng.uniform(6, 8.5), 0.3, -h, 0.05, 5)
            for _ in range(20):
                x, y = rng.uniform(-70, 70), side * rng.uniform(7, 12)
                cyl(x, y, 0.25, -h, 1.5, 3)
                ball([x, y, rng.uniform(1.5, 3)], rng.uniform(1, 2.5), 3)
    keep = (lab >= 0) & (best < 80)
    p = d[keep] * (best[keep] + rng.normal(0, noise, keep.sum()))[:, None]
    inten = np.clip(
        np.array([0.25, 0.4, 0.6, 0.3, 0.7, 0.5])[lab[keep]] + rng.normal(0, 0.05, keep.sum()), 0, 1
    )
    return np.concatenate([p, inten[:, None]], 1).astype(np.float32), lab[keep].astype(np.int32)


def voxelize(points, size=0.05):
    """Unique integer voxels (M, 3) in x, y, z order, shifted to start at zero, and the mean feature of each."""
    c = np.floor(points[:, :3] / size).astype(np.int64)
    c -= c.min(0)
    key = (c[:, 0] << 42) | (c[:, 1] << 21) | c[:, 2]
    _, first, inv = np.unique(key, return_index=True, return_inverse=True)
    return c[first].astype(np.int32), points[first], inv


def lidar(seeds=(0,), size=0.05):
    """Street scans, one a batch: coordinates int32 [N, 4] (batch, z, y, x), features [N, 4]."""
    coordinates, features = [], []
    for batch, seed in enumerate(seeds):
        points = scan(seed)[0]
        cells, first, _ = voxelize(points, size)
        coordinates.append(np.pad(cells[:, ::-1], ((0, 0), (1, 0)), constant_values=batch))
        features.append(first)
    return torch.from_numpy(np.concatenate(coordinates)), torch.from_numpy(np.concatenate(features))


def shell(resolution=256):
    """Surface voxels of a ball: 250,224 in a grid of 256."""
    g = torch.arange(resolution, dtype=torch.float32) - resolution / 2 + 0.5
    d = (g[:, None, None] ** 2 + g[None, :, None] ** 2 + g[None, None, :] ** 2).sqrt()
    r = resolution / 2 - 1
    where = ((d > r - 1.0) & (d < r + 0.25)).nonzero().int()
    return torch.cat([torch.zeros_like(where[:, :1]), where], 1).contiguous()
