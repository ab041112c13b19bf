"""Train the weights that ship with the package, on simulated streets and nothing else.

    python tools/train_demo.py --minutes 8 --out demo.pt

Processes scan new streets all the time; the network trains on what there is so far, turned,
mirrored and thinned anew each time. The learning rate follows the clock: a run of any length ends
well. Streets with seeds below `FIRST_TRAINING_SEED` are for scoring and never trained on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import fast_reference
import numpy as np
import torch
from torch.nn import functional

from sparse3d import SparseConvTensor
from sparse3d.data import Confusion, height_above_ground, read_labels, read_scan, simulate
from sparse3d.data.coarse import COARSE_NAMES, coarse_scores, to_coarse
from sparse3d.data.config import SegmentConfig, load_config
from sparse3d.data.evaluate import FIRST_TRAINING_SEED, RawConfusion
from sparse3d.data.files import atomic
from sparse3d.data.inputs import to_sparse
from sparse3d.data.segment import Segmenter, build, choose_device, load_weights
from sparse3d.data.simulate import SimulatedScan, random_sensor
from sparse3d.ops.coordinates import coordinate_unique

IGNORE = -1


def scan_streets(folder: Path, first: int, step: int, classes: Sequence[int]) -> None:
    """Worker: scan streets first, first + step, ... into the pool until stopped."""
    torch.set_num_threads(1)
    table = np.full(2**16, IGNORE, np.float32)
    table[list(classes)] = np.arange(len(classes))
    for seed in range(first, 2**31, step):
        street = simulate(seed, random_sensor(np.random.default_rng(seed)))
        rows = np.empty((len(street.points), 5), np.float32)
        rows[:, :3] = street.points[:, :3]
        rows[:, 3] = height_above_ground(street.points)
        rows[:, 4] = table[street.labels & 0xFFFF]
        part = folder / f"{seed}.part"
        with part.open("wb") as file:
            np.save(file, rows)
        part.replace(folder / f"{seed}.npy")


class Pool:
    """Scanned streets, on the device."""

    def __init__(self, folder: Path, device: torch.device, limit: int) -> None:
        self.folder, self.device, self.limit = folder, device, limit
        self.streets: list[torch.Tensor] = []
        self.fresh: list[int] = []
        self.seen: set[str] = set()

    def refresh(self) -> None:
        """Take in what the workers have finished since."""
        for entry in os.scandir(self.folder):
            if entry.name.endswith(".npy") and entry.name not in self.seen:
                self.seen.add(entry.name)
                street = torch.from_numpy(np.load(entry.path)).to(self.device)
                Path(entry.path).unlink()
                if len(self.streets) < self.limit:
                    self.streets.append(street)
                    self.fresh.append(len(self.streets) - 1)
                else:
                    slot = len(self.seen) % self.limit
                    self.streets[slot] = street
                    self.fresh.append(slot)

    def draw(self, count: int, rng: np.random.Generator) -> list[torch.Tensor]:
        """Some streets, unseen ones first."""
        fresh = [self.fresh.pop() for _ in range(min(count, len(self.fresh)))]
        old = rng.integers(0, len(self.streets), count - len(fresh)).tolist()
        return [self.streets[i] for i in fresh + old]


def augment(street: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Turn, mirror, scale, shake and thin a street; sometimes hide a sector."""
    xyz, height, label = street[:, :3], street[:, 3:4], street[:, 4:]
    angle = rng.uniform(-np.pi, np.pi)
    scale = rng.uniform(0.94, 1.06)
    c, s = np.cos(angle) * scale, np.sin(angle) * scale
    mirror = rng.choice([-1.0, 1.0])
    turn = xyz.new_tensor([[c, s, 0], [-s * mirror, c * mirror, 0], [0, 0, scale]])
    xyz = xyz @ turn + torch.randn_like(xyz) * rng.uniform(0, 0.01)
    height = height * scale + rng.normal(0, 0.03)
    rows = torch.cat([xyz, height, label], 1)
    if rng.random() < 0.5:
        rows = rows[torch.rand(len(rows), device=rows.device) > rng.uniform(0, 0.3)]
    if rng.random() < 0.2:
        around = torch.atan2(rows[:, 1], rows[:, 0])
        start, width = rng.uniform(-np.pi, np.pi), rng.uniform(0.2, 1.5)
        rows = rows[(around < start) | (around > start + width)]
    return rows


def make_batch(
    streets: Sequence[torch.Tensor], config: SegmentConfig
) -> tuple[SparseConvTensor, torch.Tensor]:
    """Voxels with mean features, and the commonest label of each."""
    coords, values, labels = [], [], []
    for number, rows in enumerate(streets):
        scaled = rows[:, :3] / config.voxel_size
        cell = scaled.floor()
        own = {"dx": 0, "dy": 1, "dz": 2}
        inside = scaled - cell - 0.5
        height = rows[:, 3].clamp(-2, 6) / 3
        columns = [inside[:, own[n]] if n in own else height for n in config.features]
        values.append(torch.stack(columns, 1))
        cell = (cell - cell.amin(0)).int().flip(1)
        coords.append(torch.cat([torch.full_like(cell[:, :1], number), cell], 1))
        labels.append(rows[:, 4].long())
    everywhere, label = torch.cat(coords), torch.cat(labels)
    first, inverse = coordinate_unique(everywhere)
    count = len(first)
    mean = torch.zeros(count, len(config.features), device=label.device)
    mean.index_add_(0, inverse, torch.cat(values))
    mean /= torch.bincount(inverse, minlength=count)[:, None]
    kinds = len(config.classes)
    counted = label >= 0
    votes = torch.bincount(inverse[counted] * kinds + label[counted], minlength=count * kinds)
    most, target = votes.reshape(count, kinds).max(1)
    target[most == 0] = IGNORE
    x = SparseConvTensor(mean, everywhere[first], None, len(streets), check=False)
    return x, target


def lovasz(probability: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Lovasz-softmax: a convex surrogate of 1 - mean IoU (Berman et al., CVPR 2018)."""
    losses = []
    for kind in target.unique().tolist():
        own = (target == kind).float()
        error, order = (own - probability[:, kind]).abs().sort(descending=True)
        own = own[order]
        missing = own.sum() - own.cumsum(0)
        union = own.sum() + (1 - own).cumsum(0)
        jaccard = 1 - missing / union
        step = torch.cat([jaccard[:1], jaccard[1:] - jaccard[:-1]])
        losses.append((error * step).sum())
    return torch.stack(losses).mean()


def loss_of(scores: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Weighted cross entropy with a little smoothing, and Lovasz."""
    scores, target = scores[target != IGNORE], target[target != IGNORE]
    entropy = functional.cross_entropy(scores, target, weight, label_smoothing=0.02)
    return entropy + 0.7 * lovasz(scores.softmax(1), target)


class Judge:
    """Scores a network on held-out streets and, where it is given, on a labelled real scan."""

    def __init__(
        self, config: SegmentConfig, streets: list[SimulatedScan], real: Path | None
    ) -> None:
        self.config, self.streets = config, streets
        self.real = None
        if real is not None:
            scan = read_scan(real)
            self.real = scan.points, read_labels(real.with_suffix(".label"), scan.total)

    def score(self, model: torch.nn.Module, device: torch.device) -> dict[str, object]:
        """IoU by class."""
        segmenter = Segmenter(self.config, model, device)
        table = RawConfusion(self.config.classes)
        for street in self.streets:
            table.add(segmenter.predict(street.points), street.labels)
        report: dict[str, object] = {
            "simulated": {k: round(v, 4) for k, v in table.scores().items()},
            "simulated mIoU": round(table.confusion.mean(), 4),
            "confusion": table.confusion.counts.tolist(),
        }
        if self.real is not None:
            coarse = Confusion(COARSE_NAMES)
            coarse.add(to_coarse(segmenter.predict(self.real[0])), to_coarse(self.real[1]))
            scores = coarse_scores(coarse)
            report["real, coarse"] = {k: round(v, 4) for k, v in scores.items()}
        return report


def one_street(seed: int) -> SimulatedScan:
    """A street under a random sensor."""
    return simulate(seed, random_sensor(np.random.default_rng(seed)))


def average(slow: torch.nn.Module, fast: torch.nn.Module, keep: float) -> None:
    """Move the slow copy of a network towards the fast one."""
    old, new = slow.state_dict().values(), fast.state_dict().values()
    pairs = [(a, b) for a, b in zip(old, new, strict=True) if a.is_floating_point()]
    with torch.no_grad():
        torch._foreach_lerp_([a for a, _ in pairs], [b for _, b in pairs], 1 - keep)


def rate_at(progress: float, peak: float) -> float:
    """A short warm-up, then a cosine to nearly nothing."""
    if progress < 0.05:
        return peak * (0.05 + 0.95 * progress / 0.05)
    return peak * (0.001 + 0.999 * 0.5 * (1 + np.cos(np.pi * (progress - 0.05) / 0.95)))


def train(args: argparse.Namespace, folder: Path, judge: Judge) -> torch.nn.Module:
    """The loop; returns the averaged network."""
    config, device = judge.config, choose_device(args.device)
    torch.manual_seed(0)
    model = build(config).to(device)
    if args.start is not None:
        model.load_state_dict(load_weights(args.start))
    slow = build(config).to(device)
    slow.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), args.rate, weight_decay=0.01)
    rng = np.random.default_rng(args.salt)
    pool = Pool(folder, device, args.limit)
    while len(pool.streets) < args.batch:
        pool.refresh()
        time.sleep(0.1)
    share = torch.bincount(torch.cat([s[:, 4].long() + 1 for s in pool.streets]),
                           minlength=len(config.classes) + 1)[1:].float()  # fmt: skip
    weight = (share.sum() / share.clamp(min=1)) ** 0.35
    weight = (weight / weight.mean()).clamp(0.3, 3).to(device)
    start, step, spoken, judged = time.time(), 0, 0.0, 0.0
    smooth = 0.0
    while (progress := (time.time() - start) / (60 * args.minutes)) < 1:
        if step % 20 == 0:
            pool.refresh()
        for group in optimizer.param_groups:
            group["lr"] = rate_at(progress, args.rate)
        streets = [augment(street, rng) for street in pool.draw(args.batch, rng)]
        x, target = make_batch(streets, config)
        loss = loss_of(model(x), target, weight)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        step += 1
        average(slow, model, min(0.98, step / (step + 10)))
        fast_reference.forget()
        if (now := time.time()) - spoken > args.every:
            spoken, smooth = now, float(loss.detach())
            print(f"{now - start:6.0f} s  step {step}  streets {len(pool.seen)}  loss {smooth:.3f}",
                  flush=True)  # fmt: skip
        if now - start - judged > args.judge and progress < 0.97:
            judged = now - start
            report = judge.score(slow, device)
            report.pop("confusion")
            print(json.dumps(report), flush=True)
    return slow


def balance(model: torch.nn.Module, config: SegmentConfig, streets: list[SimulatedScan]) -> None:
    """Shift the class biases to where the mean IoU over streets of the training range is best.

    Class weights in the loss make rare classes too eager; eleven numbers set that right.
    """
    device = next(model.parameters()).device
    table = np.full(2**16, IGNORE, np.int64)
    table[list(config.classes)] = np.arange(len(config.classes))
    scores, truth = [], []
    for street in streets:
        x, grid = to_sparse(street.points, voxel_size=config.voxel_size, features=config.features)
        with torch.inference_mode():
            logits = model.eval()(x.to(device)).cpu()
        own = torch.from_numpy(table[street.labels & 0xFFFF])
        scores.append(logits[torch.from_numpy(grid.inverse)][own >= 0])
        truth.append(own[own >= 0])
    logits, true = torch.cat(scores), torch.cat(truth)
    kinds = len(config.classes)
    shift = torch.zeros(kinds)

    def mean_iou(shift: torch.Tensor) -> float:
        flat = (logits + shift).argmax(1) * kinds + true
        counts = torch.bincount(flat, minlength=kinds * kinds).reshape(kinds, kinds).double()
        hits = counts.diagonal()
        return float((hits / (counts.sum(0) + counts.sum(1) - hits).clamp(min=1)).mean())

    best = before = mean_iou(shift)
    for size in (0.8, 0.4, 0.2, 0.1):
        for kind in range(kinds):
            for sign in (1, -1):
                tried = shift.clone()
                tried[kind] += sign * size
                if (value := mean_iou(tried)) > best:
                    best, shift = value, tried
    print(f"biases shifted by {[round(s, 2) for s in shift.tolist()]}: {before:.4f} to {best:.4f}")
    with torch.no_grad():
        model.classifier[0].bias += shift.to(device)


def save(model: torch.nn.Module, path: Path) -> None:
    """Half precision is enough to ship: it moves no score by more than 0.001."""
    state = {
        key: value.detach().cpu().half() if value.is_floating_point() else value.cpu()
        for key, value in model.state_dict().items()
    }
    with atomic(path) as file:
        torch.save(state, file)


def main() -> None:
    """Parse arguments, scan, train, save, score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="demo")
    parser.add_argument("--out", type=Path, default=Path("demo.pt"))
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int, default=8, help="streets in a step")
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--limit", type=int, default=6000, help="streets kept")
    parser.add_argument("--held-out", type=int, default=8, help="streets scored on")
    parser.add_argument("--real", type=Path, help="a labelled KITTI .bin to watch, not to train on")
    parser.add_argument("--every", type=float, default=10, help="seconds between lines")
    parser.add_argument("--judge", type=float, default=90, help="seconds between scores")
    parser.add_argument("--salt", type=int, default=0, help="seed of the order")
    parser.add_argument("--balance", type=int, default=16, help="streets to set the biases by")
    parser.add_argument("--start", type=Path, help="weights to go on from")
    parser.add_argument("--exact", action="store_true", help="train on the package's own operators")
    args = parser.parse_args()
    if not args.exact:
        fast_reference.install()
    torch.backends.cuda.matmul.allow_tf32 = True
    config = load_config(args.config)
    context = multiprocessing.get_context("spawn")
    with context.Pool(args.workers) as scanners:
        streets = scanners.map(one_street, range(1000, 1000 + args.held_out), 1)
        last = FIRST_TRAINING_SEED - 1 + 2**24
        familiar = scanners.map(one_street, range(last - args.balance, last), 1)
    judge = Judge(config, streets, args.real)
    with tempfile.TemporaryDirectory(prefix="streets") as name:
        folder = Path(name)
        crew = [
            context.Process(
                target=scan_streets,
                args=(folder, FIRST_TRAINING_SEED + i, args.workers, config.classes),
                daemon=True,
            )
            for i in range(args.workers)
        ]
        for worker in crew:
            worker.start()
        try:
            model = train(args, folder, judge)
        finally:
            for worker in crew:
                worker.terminate()
                worker.join()
    if familiar:
        balance(model, config, familiar)
    save(model, args.out)
    device = choose_device(args.device)
    report = judge.score(Segmenter.load(config, args.out, device).model, device)
    args.out.with_suffix(".json").write_text(json.dumps(report))
    report.pop("confusion")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
