"""pytorch3d.ops.utils: masked_gather."""

from ....pointops.padded import masked_gather

__all__ = ["masked_gather"]
