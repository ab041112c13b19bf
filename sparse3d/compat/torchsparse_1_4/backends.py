"""`torchsparse.backends`: settings that the peer reads; accepted."""

benchmark = False
