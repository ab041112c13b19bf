"""Graph clustering and walks: serial by nature, reference and CPU kernel only.

`graclus`: visits nodes in a given order; an unmatched node takes its first unmatched neighbour, or
the one of largest weight (of equal weights the last in row order); both get the smaller of the two
node numbers. A node without a free neighbour stays alone. Self loops are ignored.
`random_walk`: from each start node, `walk_length` steps along out-edges. Uniform (p = q = 1): edge
`floor(u * degree)` with u the step's uniform number. Otherwise node2vec by rejection: from t over v
a neighbour x of v is drawn until accepted with probability 1/p if x = t, 1 if t is reached from x,
1/q otherwise (divided by the largest of the three). A node without out-edges stays where it is, and
its edge is -1. Random numbers come from torch's generator of the CPU (`torch.manual_seed`): uniform
walks use `torch.rand(starts, walk_length)`, others seed a counter-based generator with one draw.
`neighbor_sampler`: of each start node's edges, `size` of them (all where it has fewer) or, for
`size <= 1`, `ceil(size * degree)`, without replacement, from the same generator.
Gradient: none. Determinism: same seed, same result, whatever the thread count.
Errors: nodes outside [0, num_nodes), bounds of rows that do not ascend to the number of edges,
weights that do not match the edges, tensors of several devices, walk_length < 0, p or q <= 0, size
not finite or <= 0.

Example:
    >>> import torch
    >>> from sparse3d.pointops import graclus_cluster
    >>> row, col = torch.tensor([0, 1]), torch.tensor([1, 0])
    >>> graclus_cluster(row, col).tolist()
    [0, 0]
"""

from __future__ import annotations

import math

import torch

from sparse3d._check import fail, same_device, tensor
from sparse3d._registry import Op
from sparse3d.ops.order import count_ids, order_keys, running_sum

from ._clouds import checked_pointer
from ._inputs import count, index, values_known

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


def _graclus_reference(
    rowptr: torch.Tensor, col: torch.Tensor, weight: torch.Tensor, order: torch.Tensor
) -> torch.Tensor:
    """One pass over the nodes in the given order."""
    bounds, target = rowptr.tolist(), col.tolist()
    weights = weight.tolist() if weight.numel() else None
    mate = [-1] * (len(bounds) - 1)
    for node in order.tolist():
        if mate[node] >= 0:
            continue
        partner, heaviest = node, 0.0
        for edge in range(bounds[node], bounds[node + 1]):
            other = target[edge]
            if mate[other] >= 0 or other == node:
                continue
            if weights is None:
                partner = other
                break
            if weights[edge] >= heaviest:
                partner, heaviest = other, weights[edge]
        mate[node] = mate[partner] = min(node, partner)
    return torch.tensor(mate, dtype=torch.int64, device=rowptr.device)


graclus = Op(
    "graclus(Tensor rowptr, Tensor col, Tensor weight, Tensor order) -> Tensor",
    reference=_graclus_reference,
    fake=lambda rowptr, col, weight, order: rowptr.new_empty(order.shape),
)


def mix(seed: int, counter: int) -> int:
    """64 random bits of (seed, counter): splitmix64."""
    z = (seed + (counter + 1) * _STEP) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class _Draws:
    """Numbers of one walk: below(n) in [0, n) and unit() in [0, 1), one counter each."""

    def __init__(self, seed: int, walk: int) -> None:
        self.seed = mix(seed, walk)
        self.counter = 0

    def bits(self) -> int:
        self.counter += 1
        return mix(self.seed, self.counter)

    def below(self, limit: int) -> int:
        return ((self.bits() >> 32) * limit) >> 32

    def unit(self) -> float:
        return (self.bits() >> 11) * 2.0**-53


def _walk_reference(
    rowptr: torch.Tensor,
    col: torch.Tensor,
    start: torch.Tensor,
    uniform: torch.Tensor,
    walk_length: int,
    p: float,
    q: float,
    seed: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Walk by walk, step by step."""
    bounds, target = rowptr.tolist(), col.tolist()
    chances = uniform.tolist()
    even = p == 1.0 and q == 1.0
    largest = max(1 / p, 1.0, 1 / q)
    back, near, far = 1 / p / largest, 1 / largest, 1 / q / largest
    nodes, edges = [], []
    for walk, first in enumerate(start.tolist()):
        path, taken = [first], []
        draws = _Draws(seed, walk)
        before, here = -1, first
        for step in range(walk_length):
            low, degree = bounds[here], bounds[here + 1] - bounds[here]
            if degree == 0:
                edge, there = -1, here
            elif even:
                edge = low + int(torch.tensor(chances[walk][step]) * degree)
                there = target[edge]
            else:
                while True:
                    edge = low + draws.below(degree)
                    there = target[edge]
                    if step == 0 or degree == 1:
                        break
                    chance = draws.unit()
                    reached = before in target[bounds[there] : bounds[there + 1]]
                    limit = back if there == before else near if reached else far
                    if chance < limit:
                        break
            path.append(there)
            taken.append(edge)
            before, here = here, there
        nodes.append(path)
        edges.append(taken)
    shape = (len(nodes), walk_length)
    return (
        torch.tensor(nodes, dtype=torch.int64).view(shape[0], walk_length + 1).to(start.device),
        torch.tensor(edges, dtype=torch.int64).view(shape).to(start.device),
    )


walk = Op(
    "random_walk(Tensor rowptr, Tensor col, Tensor start, Tensor uniform, int walk_length,"
    " float p, float q, int seed) -> (Tensor nodes, Tensor edges)",
    reference=_walk_reference,
    fake=lambda rowptr, col, start, uniform, walk_length, p, q, seed: (
        start.new_empty((start.shape[0], walk_length + 1)),
        start.new_empty((start.shape[0], walk_length)),
    ),
)


def _rows(row: torch.Tensor, num_nodes: int) -> torch.Tensor:
    counts = count_ids(row, num_nodes)
    return torch.cat([counts.new_zeros(1), running_sum(counts)])


def _edges(
    row: torch.Tensor, col: torch.Tensor, num_nodes: int | None, *others: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Checked int64 edges and the number of nodes."""
    tensor("row", row, 1)
    tensor("col", col, 1)
    same_device(row=row, col=col)
    if row.shape != col.shape:
        fail("col", f"of {row.numel()} entries as row has", col.numel())
    if num_nodes is None:
        sizes = [int(part.max()) + 1 for part in (row, col, *others) if part.numel()]
        num_nodes = max(sizes, default=0)
    count("num_nodes", num_nodes, 0)
    row = index("row", row, 1, num_nodes, pad=False)
    col = index("col", col, 1, num_nodes, pad=False)
    return row.long(), col.long(), num_nodes


def _compressed(
    rowptr: torch.Tensor, col: torch.Tensor, **others: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Checked int64 bounds and columns of a graph in compressed rows."""
    tensor("rowptr", rowptr, 1)
    tensor("col", col, 1)
    same_device(rowptr=rowptr, col=col, **others)
    if values_known(rowptr):
        checked_pointer("rowptr", rowptr, col.numel(), rowptr.device, of="edges", least=0)
    index("col", col, 1, rowptr.numel() - 1, pad=False)
    return rowptr.long().contiguous(), col.long().contiguous()


def _check_weight(weight: torch.Tensor | None, col: torch.Tensor) -> None:
    if weight is not None and tensor("weight", weight).shape != col.shape:
        fail("weight", f"of {col.numel()} entries, one an edge", list(weight.shape))


def graclus_cluster(
    row: torch.Tensor,
    col: torch.Tensor,
    weight: torch.Tensor | None = None,
    num_nodes: int | None = None,
) -> torch.Tensor:
    """Greedy matching of nodes with a neighbour.

    Args:
        row: (E,) int64 or int32, edges of a symmetric graph in any order.
        col: as `row`.
        weight: (E,), the heaviest free neighbour is taken; None: the first in a random order.
        num_nodes: nodes; the largest number + 1 where None.

    Returns:
        (num_nodes,) int64 cluster of each node; nodes are visited in a random order.
    """
    row, col, nodes = _edges(row, col, num_nodes)
    _check_weight(weight, col)
    same_device(row=row, weight=weight)
    kept = row != col
    row, col = row[kept], col[kept]
    shuffle = torch.arange(row.numel()) if weight is not None else torch.randperm(row.numel())
    shuffle = shuffle.to(row.device)
    order = shuffle[order_keys(row[shuffle])]
    values = None if weight is None else weight[kept][order]
    return graclus_csr(_rows(row[order], nodes), col[order], values)


def graclus_csr(
    rowptr: torch.Tensor, col: torch.Tensor, weight: torch.Tensor | None = None
) -> torch.Tensor:
    """`graclus_cluster` of a graph in compressed rows, edges in the given order."""
    rowptr, col = _compressed(rowptr, col, weight=weight)
    _check_weight(weight, col)
    device = col.device
    if device.type == "mps":  # which has no float64, and nothing to run side by side here
        rowptr, col = rowptr.cpu(), col.cpu()
        weight = None if weight is None else weight.cpu()
    visit = torch.randperm(rowptr.numel() - 1).to(rowptr.device)
    values = col.new_empty(0, dtype=torch.float64) if weight is None else weight.double()
    mates: torch.Tensor = graclus(rowptr, col, values.contiguous(), visit)
    return mates.to(device)


def random_walk(
    row: torch.Tensor,
    col: torch.Tensor,
    start: torch.Tensor,
    walk_length: int,
    p: float = 1,
    q: float = 1,
    coalesced: bool = True,
    num_nodes: int | None = None,
    return_edge_indices: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Random walks along edges.

    Args:
        row: (E,) int64 or int32 edges.
        col: as `row`.
        start: (S,) int64 or int32 first nodes.
        walk_length: steps.
        p: a small p returns to the node before more often.
        q: a small q walks away from it.
        coalesced: sort the edges by (row, col) first; without it `row` must already be sorted.
        num_nodes: nodes; the largest number + 1 where None.
        return_edge_indices: also return the edges taken (positions in the sorted edges).

    Returns:
        Nodes (S, walk_length + 1), and edges (S, walk_length) where asked for; -1: no edge.
    """
    tensor("start", start, 1)
    same_device(row=row, start=start)
    row, col, nodes = _edges(row, col, num_nodes, start)
    start = index("start", start, 1, nodes, pad=False)
    if coalesced:
        order = order_keys(row * nodes + col)
        row, col = row[order], col[order]
    elif row.numel() and bool((row[1:] < row[:-1]).any()):
        fail("row", "sorted", "a vector that decreases", "pass coalesced=True")
    found = random_walk_csr(_rows(row, nodes), col, start, walk_length, p, q)
    return found if return_edge_indices else found[0]


def random_walk_csr(
    rowptr: torch.Tensor,
    col: torch.Tensor,
    start: torch.Tensor,
    walk_length: int,
    p: float,
    q: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`random_walk` on a graph in compressed rows: nodes and edges."""
    count("walk_length", walk_length, 0)
    for name, value in (("p", p), ("q", q)):
        if not 0 < value < float("inf"):
            fail(name, "finite and > 0", value)
    even = float(p) == 1.0 and float(q) == 1.0
    rowptr, col = _compressed(rowptr, col, start=start)
    start = index("start", start, 1, rowptr.numel() - 1, pad=False).long()
    chances = (start.numel(), walk_length) if even else (0,)
    uniform = torch.rand(chances, dtype=torch.float32)
    seed = 0 if even else int(torch.randint(1 << 62, ()))
    found: tuple[torch.Tensor, torch.Tensor] = walk(
        rowptr,
        col,
        start.contiguous(),
        uniform.to(start.device),
        walk_length,
        float(p),
        float(q),
        seed,
    )
    return found


def neighbor_sampler(start: torch.Tensor, rowptr: torch.Tensor, size: float) -> torch.Tensor:
    """Edges sampled without replacement from each start node's row.

    Args:
        start: (S,) int64 or int32 nodes.
        rowptr: (num_nodes + 1,) int64 or int32 bounds of the rows.
        size: edges a node where > 1, else the share of its edges.

    Returns:
        int64 positions of edges, node by node.
    """
    if not 0 < size < math.inf:
        fail("size", "finite and > 0", size)
    tensor("rowptr", rowptr, 1)
    edges = int(rowptr[-1]) if rowptr.numel() else 0
    bounds = checked_pointer("rowptr", rowptr, edges, start.device, of="edges", least=0).tolist()
    index("start", start, 1, len(bounds) - 1, pad=False)
    picked = []
    for node in start.tolist():
        first, last = bounds[node], bounds[node + 1]
        wanted = int(size) if size > 1 else math.ceil(size * (last - first))
        picked.append(torch.randperm(last - first)[:wanted] + first)
    empty = torch.empty(0, dtype=torch.int64)
    return torch.cat([empty, *picked]).to(start.device)
