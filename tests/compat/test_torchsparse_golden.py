"""Every recorded torchsparse vector, through both stand-ins (2.1 and 1.4)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from compat.vectors import FORWARD, GRADIENT, close, order, tensor
from golden import reader
from golden.reader import Vector

import sparse3d.compat.torchsparse as ts21
import sparse3d.compat.torchsparse_1_4 as ts14
from sparse3d import _registry
from sparse3d.compat.torchsparse.utils.quantize import sparse_quantize

CONV = [n for n in reader.names("ts") if Vector(n).meta["op"] == "conv"]
VERSIONS = {"2.1": ts21, "1.4": ts14}


def to_peer(peer: object, coords: torch.Tensor, stride: list[int]) -> torch.Tensor:
    """The files' (batch, x, y, z), multiples of the stride, in a version's own convention."""
    kind = peer.SparseTensor  # type: ignore[attr-defined]
    unit = coords.new_tensor([1, *stride])
    return kind.from_indices(coords // unit, tuple(stride))


def from_peer(x: object) -> torch.Tensor:
    """A tensor's coordinates as the files have them."""
    indices = x.sites().indices  # type: ignore[attr-defined]
    return indices * indices.new_tensor([1, *x.stride])  # type: ignore[attr-defined]


def conv_of(peer: object, vector: Vector, **more: object) -> torch.nn.Module:
    meta = vector.meta
    layer = peer.nn.Conv3d(  # type: ignore[attr-defined]
        *vector["weight"].shape[-2:],
        kernel_size=tuple(meta["kernel"]),
        stride=tuple(meta["stride"]),
        dilation=meta["dilation"],
        **more,
    )
    layer.load_state_dict({"kernel": tensor(vector, "weight")})
    return layer


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CONV)
def test_convolutions(name: str, version: str, backend: str) -> None:
    peer, vector = VERSIONS[version], Vector(name)
    coords = to_peer(peer, tensor(vector, "in_coords"), [1, 1, 1])
    ts21.tensor.set_allow_negative_coordinates(True)
    with _registry.force(backend):
        x = peer.SparseTensor(tensor(vector, "in_feats").requires_grad_(), coords)
        layer = conv_of(peer, vector)
        out = layer(x)
        rows = order(vector["out_coords"], from_peer(out))
        close(out.feats, tensor(vector, "out_feats")[rows], FORWARD)
        out.feats.backward(tensor(vector, "grad_out")[rows])
    ts21.tensor.set_allow_negative_coordinates(False)
    assert out.stride == tuple(vector.meta["stride"])
    close(x.feats.grad, tensor(vector, "grad_in"), GRADIENT)
    close(layer.kernel.grad, tensor(vector, "grad_weight"), GRADIENT)


@pytest.mark.parametrize("version", VERSIONS)
def test_transposed(version: str) -> None:
    peer, vector = VERSIONS[version], Vector("ts_transpose_k2s2")
    fine = to_peer(peer, tensor(vector, "out_coords"), [1, 1, 1])
    x = peer.SparseTensor(torch.zeros(len(fine), 1), fine)
    ts21.tensor.set_allow_negative_coordinates(True)
    down = peer.nn.Conv3d(1, 1, 2, stride=2)(x)
    ts21.tensor.set_allow_negative_coordinates(False)
    rows = order(vector["in_coords"], from_peer(down))
    coarse = down.like(tensor(vector, "in_feats")[rows].requires_grad_())
    layer = conv_of(peer, vector, transposed=True)
    out = layer(coarse)
    assert out.coords is fine
    close(out.feats, tensor(vector, "out_feats"), FORWARD)
    out.feats.backward(tensor(vector, "grad_out"))
    close(coarse.feats.grad, tensor(vector, "grad_in")[rows], GRADIENT)
    close(layer.kernel.grad, tensor(vector, "grad_weight"), GRADIENT)


@pytest.mark.parametrize("version", VERSIONS)
def test_global_pools(version: str) -> None:
    peer, vector = VERSIONS[version], Vector("ts_globalpool")
    coords = to_peer(peer, tensor(vector, "in_coords"), [1, 1, 1])
    x = peer.SparseTensor(tensor(vector, "in_feats"), coords)
    close(peer.nn.GlobalAvgPool()(x), tensor(vector, "avg"), FORWARD)
    close(peer.nn.functional.global_max_pool(x), tensor(vector, "max"), FORWARD)


def test_sparse_quantize() -> None:
    vector = Vector("ts_sparse_quantize")
    coords, index, inverse = sparse_quantize(
        vector["points"], 0.4, return_index=True, return_inverse=True
    )
    np.testing.assert_array_equal(coords, vector["coords"])
    np.testing.assert_array_equal(index, vector["index"])
    np.testing.assert_array_equal(inverse, vector["inverse"])


def test_hash_and_voxelize() -> None:
    vector = Vector("ts_voxelize")
    functional = ts14.nn.functional
    cells = np.floor(vector["points"]).astype(np.int32)
    batch = vector["batch"].astype(np.int32)[:, None]
    xyzb = torch.from_numpy(np.concatenate([cells, batch], 1))
    bxyz = torch.from_numpy(np.concatenate([batch, cells], 1))
    hashes = [functional.sphash(xyzb), ts21.nn.functional.sphash(bxyz)]
    assert any(torch.equal(h, tensor(vector, "hash")) for h in hashes)
    rows = functional.sphashquery(tensor(vector, "hash"), tensor(vector, "unique_hash"))
    assert torch.equal(rows.int(), tensor(vector, "idx").int())
    counts = functional.spcount(rows.int(), len(vector["counts"]))
    assert torch.equal(counts, tensor(vector, "counts").int())
    feats = tensor(vector, "feats").requires_grad_()
    out = functional.spvoxelize(feats, rows, counts)
    close(out, tensor(vector, "out_feats"), FORWARD)
    out.backward(tensor(vector, "grad_out"))
    close(feats.grad, tensor(vector, "grad_in"), GRADIENT)
    missing = functional.sphashquery(torch.tensor([[-7]]), tensor(vector, "unique_hash"))
    assert missing.tolist() == [[-1]]
