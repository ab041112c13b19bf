"""Run by its own process: spconv's CPU wheel solves problems. Usage: peer.py COUNT SEED OUT."""

from __future__ import annotations

import importlib
import sys
from dataclasses import asdict
from pathlib import Path

import torch


def main(count: int, seed: int, out: str) -> None:
    """Solve ``count`` random layers, as many programs and one net; save everything to ``out``."""
    torch.set_num_threads(1)  # its CPU path is racy with two
    torch.manual_seed(seed)
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from parity import problems, programs

    spconv = importlib.import_module("spconv.pytorch")
    # Its backward asks for a CUDA stream even on a CPU-only torch.
    importlib.import_module("spconv.pytorch.ops").__dict__["get_current_stream"] = lambda: 0

    solved = []
    for problem in problems.layers(count, seed):
        problem.answer = problems.solve(spconv, problem)
        problem.state = {
            k.removeprefix("state."): v for k, v in problem.answer.items() if k[:6] == "state."
        }
        solved.append(asdict(problem))
    whole = problems.net_problem(seed)
    whole.answer = problems.solve_net(spconv, whole)
    solved.append(asdict(whole))
    torch.save(
        {"problems": solved, "programs": [programs.solve(spconv, n) for n in range(count)]}, out
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
