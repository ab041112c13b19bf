"""`torchsparse.utils.collate`: the tensors say where the batch column goes."""

from ...torchsparse.utils.collate import sparse_collate, sparse_collate_fn

__all__ = ["sparse_collate", "sparse_collate_fn"]
