"""Weights of other libraries, and ours: read, recognise, rename, permute, load, save.

    report = checkpoint.load(model, "minkunet.pt")  # spvnas, mmdetection3d, Pointcept, ...

Files are opened with `weights_only=True` (nothing in them is executed) or as safetensors. What is
told apart is the *layout* of convolution kernels:

| layout | stored kernel | libraries |
|---|---|---|
| `spconv` | `[out, *k, in]`, 1 x 1 as `[in, out]` memory | spconv 2.2 and later, sparse3d |
| `spconv-2.1` | `[*k, out, in]` | spconv 2.0, 2.1 |
| `spconv-1` | `[*k, in, out]` | spconv 1.x |
| `minkowski` | `[K, in, out]`, first axis fastest | MinkowskiEngine 0.5 |
| `torchsparse` | `[K, in, out]`, first axis fastest if K is odd, else last | torchsparse 1.4, 2.x |

Names are matched as they are, less `module.` prefixes; where ours is absent, `kernel` is `weight`
and the `.bn.` and `.linear.` of MinkowskiEngine's wrappers may be left out, if that leaves one name
for one. A model that is part of a larger one (`backbone_3d.`) is found by its prefix;
mmdetection3d's MinkUNet is renamed by rule.
"""

from ._files import read, save
from ._layouts import LAYOUTS, detect, to_canonical
from ._load import LoadReport, convert, load

__all__ = ["LAYOUTS", "LoadReport", "convert", "detect", "load", "read", "save", "to_canonical"]
