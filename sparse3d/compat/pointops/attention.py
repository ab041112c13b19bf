"""pointops.attention: the two steps of attention over pairs (target, refer)."""

from ...pointops.attention import attention_fusion_step, attention_relation_step

__all__ = ["attention_fusion_step", "attention_relation_step"]
