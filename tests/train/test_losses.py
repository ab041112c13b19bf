"""Losses against formulas written out, schedules against torch's."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional

from sparse3d.data.batch import IGNORE
from sparse3d.train import lovasz_softmax, rate_factor, segmentation_loss
from sparse3d.train.config import RateConfig
from sparse3d.train.trainer import set_rates


def jaccard_loss(missed: set[int], own: set[int]) -> float:
    """1 - IoU of a class when these points are wrong."""
    return len(missed) / len(own | missed)


def lovasz_by_definition(probability: torch.Tensor, target: torch.Tensor) -> float:
    """The Lovasz extension: errors from the largest down, each times the growth of the loss."""
    losses = []
    for kind in target.unique().tolist():
        own = {i for i, t in enumerate(target.tolist()) if t == kind}
        errors = [
            (1 - p if i in own else p, i) for i, p in enumerate(probability[:, kind].tolist())
        ]
        errors.sort(key=lambda pair: -pair[0])
        total, wrong = 0.0, set()
        for error, i in errors:
            before = jaccard_loss(wrong, own)
            wrong = wrong | {i}
            total += error * (jaccard_loss(wrong, own) - before)
        losses.append(total)
    return sum(losses) / len(losses)


def test_lovasz_is_the_extension_of_one_minus_iou() -> None:
    probability = torch.randn(40, 5).softmax(1).double()
    target = torch.randint(0, 4, (40,))
    expected = lovasz_by_definition(probability, target)
    assert lovasz_softmax(probability, target).item() == pytest.approx(expected, abs=1e-12)


def test_lovasz_of_hard_labels_is_one_minus_miou() -> None:
    for truth, guess in itertools.product(itertools.product((0, 1), repeat=3), repeat=2):
        target, predicted = torch.tensor(truth), torch.tensor(guess)
        own = [(target == k, predicted == k) for k in target.unique().tolist()]
        iou = [((t & p).sum() / (t | p).sum()).item() for t, p in own]
        loss = lovasz_softmax(functional.one_hot(predicted, 2).double(), target)
        assert loss.item() == pytest.approx(1 - sum(iou) / len(iou))


def test_lovasz_gradient() -> None:
    scores = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, 3, (12,))
    assert torch.autograd.gradcheck(lambda s: lovasz_softmax(s.softmax(1), target), scores)


def test_cross_entropy_is_weighted_and_smoothed_as_torch_does() -> None:
    scores, target = torch.randn(50, 4), torch.randint(0, 4, (50,))
    target[::7] = IGNORE
    weight = torch.tensor([0.5, 1.0, 2.0, 3.0])
    loss = segmentation_loss(scores, target, weight=weight, smoothing=0.1)
    expected = functional.cross_entropy(
        scores, target, weight, ignore_index=IGNORE, label_smoothing=0.1
    )
    torch.testing.assert_close(loss, expected)
    both = segmentation_loss(scores, target, weight=weight, smoothing=0.1, lovasz=0.5)
    kept = target != IGNORE
    torch.testing.assert_close(
        both, loss + 0.5 * lovasz_softmax(scores[kept].softmax(1), target[kept])
    )


def test_halves_with_the_mean_of_their_totals_average_to_the_whole() -> None:
    scores, target = torch.randn(30, 4), torch.randint(0, 4, (30,))
    weight = torch.tensor([0.5, 1.0, 2.0, 3.0])
    total = weight[target].sum() / 2
    parts = [
        segmentation_loss(scores[rows], target[rows], weight=weight, total=total)
        for rows in (slice(11), slice(11, None))
    ]
    torch.testing.assert_close(sum(parts) / 2, segmentation_loss(scores, target, weight=weight))


@pytest.mark.parametrize("rows", [0, 5])
def test_nothing_that_counts_gives_zero(rows: int) -> None:
    scores = torch.randn(rows, 4, requires_grad=True)
    loss = segmentation_loss(scores, torch.full((rows,), IGNORE), smoothing=0.1, lovasz=1.0)
    loss.backward()
    assert loss.item() == 0
    assert scores.grad is not None
    assert (scores.grad == 0).all()


@pytest.mark.parametrize(("steps", "warmup"), [(100, 0.3), (40, 0.2), (10, 0.5)])
def test_one_cycle_is_torchs(steps: int, warmup: float) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], 1.0)
    torchs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        1.0,
        steps,
        pct_start=warmup,
        final_div_factor=1 / (25 * 0.002),
        cycle_momentum=False,
    )
    for step in range(steps):
        ours = rate_factor("one_cycle", step, steps, warmup, 0.002)
        assert ours == pytest.approx(torchs.get_last_lr()[0], abs=1e-9), step
        optimizer.step()
        torchs.step()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_one_cycle_has_torchs_ends_and_momentum(kind: type[torch.optim.Optimizer]) -> None:
    parameter, own = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer, ours = kind([parameter], 0.002, **options), kind([own], 0.002, **options)
    torchs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.002, 50, pct_start=0.3, div_factor=10, final_div_factor=100
    )
    rates = RateConfig(
        rate=0.002, schedule="one_cycle", warmup=0.3, start=0.1, final=0.001, momenta=(0.85, 0.95)
    )
    for step in range(50):
        set_rates(ours, rates, step, 50)
        for key in ("lr", "momentum", "betas"):
            if key in optimizer.param_groups[0]:
                wanted = optimizer.param_groups[0][key]
                assert ours.param_groups[0][key] == pytest.approx(wanted, abs=1e-9), (key, step)
        optimizer.step()
        torchs.step()


def test_cosine_rises_then_falls() -> None:
    rates = [rate_factor("cosine", step, 101, 0.1, 0.01) for step in range(101)]
    assert rates[0] == pytest.approx(0.05)
    assert rates[10] == pytest.approx(1)
    assert rates[100] == pytest.approx(0.01)
    assert rates[55] == pytest.approx(0.505)
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_milestones_and_constant() -> None:
    rates = [rate_factor("milestones", step, 36, 0, 0, (0.6667, 0.8889)) for step in range(36)]
    assert rates[24] == pytest.approx(1)
    assert rates[25] == pytest.approx(0.1)
    assert rates[33] == pytest.approx(0.01)
    assert rate_factor("constant", 9, 10) == 1
    assert rate_factor("constant", 0, 1, 0.0) == 1
    with pytest.raises(ValueError, match="schedule must be one of"):
        rate_factor("linear", 0, 1)
