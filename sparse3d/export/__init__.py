"""Models as functions of feature rows and kernel maps: `torch.export` programs and ONNX files.

The sites of a scene decide its kernel maps, and their sizes follow the data. So a network is split
where `sparse3d.nn.prepare` splits it: the maps are built here for every scene, the feature path is
exported once and takes them as inputs.

    export_onnx(model, x, "net.onnx")                       # once
    inputs = feature_inputs(model, other)                   # for every scene
    session.run(None, {name: value.numpy() for name, value in inputs.items()})

Inputs, all but the first in the order in which the model first needs them:

| name | what |
|---|---|
| `features` | [N, C_in] |
| `sites0`, `sites1`, ... | int32 [rows, 1 + D], the sites of each level; read for their number |
| `map0_src`, `map0_dst` | int32 [P], the pairs of a kernel map, grouped by tap |
| `map0_splits` | int64 [K + 1], the bounds of the taps |

In ONNX a convolution is one Slice, Gather, MatMul and ScatterND a tap; there is no custom operator.
Sums are added in another order than ours: results agree within the bounds of docs/numerics.md, not
to the byte.
"""

from ._feature_path import export_program, feature_inputs
from ._onnx import export_onnx

__all__ = ["export_onnx", "export_program", "feature_inputs"]
