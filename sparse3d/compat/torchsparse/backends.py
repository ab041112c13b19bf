"""`torchsparse.backends`: settings that the peer reads; accepted."""

benchmark = False
allow_tf32 = False
allow_fp16 = False
device = None
hash_rsv_ratio = 2.0


def init() -> None:
    """Accepted."""
