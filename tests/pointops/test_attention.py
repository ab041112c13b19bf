from __future__ import annotations

import pytest
import torch

from sparse3d.pointops import attention

ROWS, SAMPLES, CHANNELS, GROUPS, PAIRS = 6, 3, 8, 2, 15


def test_subtraction_and_aggregation_say_what_their_formulas_say(backend: str) -> None:
    index = torch.randint(0, ROWS, (ROWS, SAMPLES))
    first, second = torch.rand(2, ROWS, CHANNELS)
    apart = attention.subtraction(first, second, index.int())
    position, weight = torch.rand(ROWS, SAMPLES, CHANNELS), torch.rand(ROWS, SAMPLES, 4)
    total = attention.aggregation(first, position, weight, index)
    for i in range(ROWS):
        for c in range(CHANNELS):
            terms = []
            for j in range(SAMPLES):
                near = int(index[i, j])
                assert float(apart[i, j, c]) == float(first[i, c] - second[near, c])
                terms.append(float(first[near, c] + position[i, j, c]) * float(weight[i, j, c % 4]))
            assert float(total[i, c]) == pytest.approx(sum(terms), rel=1e-5)


def test_attention_steps_say_what_their_formulas_say(backend: str) -> None:
    query, key = torch.rand(2, ROWS, GROUPS, 4)
    target, refer = torch.randint(0, ROWS, (2, PAIRS))
    target[target == 2] = 3  # one row without pairs
    scale = torch.rand(4)
    relation = attention.attention_relation_step(query, key, scale, target, refer.int())
    fused = attention.attention_fusion_step(relation, key, target, refer)
    wanted = torch.zeros(ROWS, GROUPS, 4, dtype=torch.float64)
    for pair in range(PAIRS):
        product = query[target[pair]].double() * key[refer[pair]].double() * scale.double()
        assert torch.allclose(relation[pair].double(), product.sum(1), rtol=1e-5)
        wanted[target[pair]] += relation[pair].double()[:, None] * key[refer[pair]].double()
    assert torch.allclose(fused.double(), wanted, rtol=1e-5)
    assert not fused[2].any()


def test_gradients_reach_everything_that_floats() -> None:
    index = torch.randint(0, ROWS, (ROWS, SAMPLES))
    target, refer = torch.randint(0, ROWS, (2, PAIRS))
    wide = {"dtype": torch.float64, "requires_grad": True}
    rows, other = torch.rand(ROWS, CHANNELS, **wide), torch.rand(ROWS, CHANNELS, **wide)
    position = torch.rand(ROWS, SAMPLES, CHANNELS, **wide)
    weight = torch.rand(ROWS, SAMPLES, 2, **wide)
    query, key = torch.rand(ROWS, 2, 4, **wide), torch.rand(ROWS, 2, 4, **wide)
    scale, share = torch.rand(4, **wide), torch.rand(PAIRS, 2, **wide)
    calls = [
        (lambda a, b: attention.subtraction(a, b, index), (rows, other)),
        (lambda a, p, w: attention.aggregation(a, p, w, index), (rows, position, weight)),
        (
            lambda q, k, s: attention.attention_relation_step(q, k, s, target, refer),
            (query, key, scale),
        ),
        (lambda w, v: attention.attention_fusion_step(w, v, target, refer), (share, key)),
    ]
    for run, leaves in calls:
        assert torch.autograd.gradcheck(run, leaves)
        assert torch.autograd.gradgradcheck(run, leaves)


def test_relative_positions_say_what_their_formulas_say(backend: str) -> None:
    query, key = torch.rand(2, ROWS, GROUPS, 4)
    tables = torch.rand(2, 5, GROUPS, 4, 3)
    target, refer = torch.randint(0, ROWS, (2, PAIRS))
    where, weight = torch.randint(0, 5, (PAIRS, 3)), torch.rand(PAIRS, GROUPS)
    relation = attention.relative_relation_step(query, tables[0], target.int(), where.int())
    bias = attention.relative_bias(query, key, *tables, target, refer, where)
    fused = attention.relative_fusion_step(weight, key, tables[0], target, refer, where)
    wanted = torch.zeros(ROWS, GROUPS, 4)
    for pair in range(PAIRS):
        at, to = int(target[pair]), int(refer[pair])
        for g in range(GROUPS):
            entry, other = (
                sum(table[where[pair, axis], g, :, axis] for axis in range(3)) for table in tables
            )
            first, second = (query[at, g] * entry).sum(), (key[to, g] * other).sum()
            assert float(relation[pair, g]) == pytest.approx(float(first), rel=1e-5)
            assert float(bias[pair, g]) == pytest.approx(float(first + second), rel=1e-5)
            wanted[at, g] += weight[pair, g] * (key[to, g] + entry)
    assert torch.allclose(fused, wanted, rtol=1e-5)
    plain = attention.attention_relation_step(query, key, None, target, refer)
    ones = attention.attention_relation_step(query, key, torch.ones(4), target, refer)
    assert torch.equal(plain, ones)


def test_compact_results_end_at_the_largest_target(backend: str) -> None:
    value, table = torch.rand(ROWS, GROUPS, 4), torch.rand(5, GROUPS, 4, 3)
    target, refer = torch.tensor([0, 0, 3]), torch.tensor([5, 1, 2])
    weight, where = torch.rand(3, GROUPS), torch.randint(0, 5, (3, 3))
    whole = attention.attention_fusion_step(weight, value, target, refer)
    few = attention.attention_fusion_step(weight, value, target, refer, compact=True)
    assert few.shape[0] == 4
    assert torch.equal(few, whole[:4])
    args = weight, value, table, target, refer, where
    few = attention.relative_fusion_step(*args, compact=True)
    assert torch.equal(few, attention.relative_fusion_step(*args)[:4])
    none = attention.attention_fusion_step(weight[:0], value, target[:0], refer[:0], compact=True)
    assert none.shape == (0, GROUPS, 4)


def test_targets_of_pairs_that_lie_target_by_target(backend: str) -> None:
    bounds = torch.tensor([0, 2, 2, 5, 6], dtype=torch.int32)
    assert attention.targets(bounds, 6).tolist() == [0, 0, 2, 2, 2, 3]
    with pytest.raises(ValueError, match="offsets must be ascending, start at 0 and end at 7"):
        attention.targets(bounds, 7)


def test_gradients_of_relative_positions() -> None:
    wide = {"dtype": torch.float64, "requires_grad": True}
    query, table = torch.rand(ROWS, 2, 3, **wide), torch.rand(4, 2, 3, 2, **wide)
    weight = torch.rand(PAIRS, 2, **wide)
    target, refer = torch.randint(0, ROWS, (2, PAIRS))
    where = torch.randint(0, 4, (PAIRS, 2))
    assert torch.autograd.gradcheck(
        lambda q, t: attention.relative_relation_step(q, t, target, where), (query, table)
    )
    assert torch.autograd.gradcheck(
        lambda w, v, t: attention.relative_fusion_step(w, v, t, target, refer, where),
        (weight, query, table),
    )


def test_bad_input(backend: str) -> None:
    rows, index = torch.rand(4, 8), torch.zeros(4, 3, dtype=torch.int64)
    position, weight = torch.rand(4, 3, 8), torch.rand(4, 3, 2)
    with pytest.raises(ValueError, match=r"idx must be in \[0, 4\), got -1"):
        attention.subtraction(rows, rows, index - 1)
    with pytest.raises(ValueError, match=r"weight must be of shape \(4, 3, a divisor of 8\)"):
        attention.aggregation(rows, position, torch.rand(4, 3, 3), index)
    with pytest.raises(ValueError, match=r"position must be of shape \[4, 3, 7\]"):
        attention.aggregation(torch.rand(4, 7), position, weight, index)
    pairs = torch.tensor([0, 1])
    heads = torch.rand(4, 2, 4)
    with pytest.raises(ValueError, match="index_refer must be of 2 entries as index_target"):
        attention.attention_relation_step(heads, heads, torch.rand(4), pairs, pairs[:1])
    with pytest.raises(ValueError, match=r"index_target must be in \[0, 4\), got 4"):
        attention.attention_relation_step(heads, heads, torch.rand(4), pairs + 3, pairs)
    with pytest.raises(ValueError, match=r"weight must be of shape \[2, 2\]"):
        attention.attention_fusion_step(torch.rand(3, 2), heads, pairs, pairs)
    table, where = torch.rand(5, 2, 4, 3), torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"table must be of shape \(l, 2, 4, 3\)"):
        attention.relative_relation_step(heads, table[:, :1], pairs, where)
    with pytest.raises(ValueError, match=r"rel_idx must be in \[0, 5\), got 5"):
        attention.relative_relation_step(heads, table, pairs, where + 5)
    with pytest.raises(ValueError, match="rel_idx must be of 2 rows as index has, got 1"):
        attention.relative_relation_step(heads, table, pairs, where[:1])
    with pytest.raises(ValueError, match="rel_idx must be of 2 rows as index_target has, got 1"):
        attention.relative_fusion_step(torch.rand(2, 2), heads, table, pairs, pairs, where[:1])
