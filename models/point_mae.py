"""Point-MAE: patches of a cloud, most of them masked, restored by a transformer.

`Grouping` makes the patches: farthest points as centres, the nearest points of each, relative to
the centre. The loss is the Chamfer distance of the masked patches.

Source: Pang, Wang, Tay, Liu, Tian, Yuan, "Masked Autoencoders for Point Cloud Self-supervised
Learning", ECCV 2022.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from sparse3d.nn import Linear
from sparse3d.ops.linear import linear
from sparse3d.pointops import chamfer_distance, furthest_point_sample, gather, group, knn

__all__ = ["Grouping", "PointMAE"]


class Grouping(nn.Module):
    """Patches of a cloud.

    Args:
        groups: centres.
        size: points of a patch.

    Example:
        >>> import torch
        >>> from sparse3d.models.point_mae import Grouping
        >>> patches, centres = Grouping(16, 8)(torch.rand(2, 100, 3))
        >>> patches.shape, centres.shape
        (torch.Size([2, 16, 8, 3]), torch.Size([2, 16, 3]))
    """

    def __init__(self, groups: int, size: int) -> None:
        super().__init__()
        self.groups, self.size = groups, size

    def forward(self, xyz: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, N, 3) -> patches (B, G, S, 3) relative to their centres, centres (B, G, 3)."""
        columns = xyz.transpose(1, 2).contiguous()
        centre = gather(columns, furthest_point_sample(xyz, self.groups)).transpose(1, 2)
        _, index = knn(centre, xyz, self.size)
        patches = group(columns, index).permute(0, 2, 3, 1)
        return patches - centre[:, :, None], centre.contiguous()


class _PatchEncoder(nn.Module):
    """A token for each patch: two small PointNets."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv1d(3, 128, 1), nn.BatchNorm1d(128), nn.ReLU(), nn.Conv1d(128, 256, 1)
        )
        self.second = nn.Sequential(
            nn.Conv1d(512, 512, 1), nn.BatchNorm1d(512), nn.ReLU(), nn.Conv1d(512, width, 1)
        )

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        batch, groups, size, _ = patches.shape
        local = self.first(patches.reshape(batch * groups, size, 3).transpose(1, 2))
        whole = local.amax(2, keepdim=True).expand(-1, -1, size)
        tokens: torch.Tensor = self.second(torch.cat([whole, local], 1)).amax(2)
        return tokens.view(batch, groups, -1)


def _position(width: int) -> nn.Sequential:
    return nn.Sequential(Linear(3, 128), nn.GELU(), Linear(128, width))


class _Block(nn.TransformerEncoderLayer):
    """Torch's layer and parameters, without dropout and masks; its products with weights are ours,
    since their gradients sum over the tokens of a batch."""

    def _sa_block(self, x: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        attention, (batch, tokens, width) = self.self_attn, x.shape
        joint = linear(x, attention.in_proj_weight, attention.in_proj_bias)
        heads = joint.view(batch, tokens, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(heads[0], heads[1], heads[2])
        mixed = mixed.transpose(1, 2).reshape(batch, tokens, width)
        return linear(mixed, attention.out_proj.weight, attention.out_proj.bias)

    def _ff_block(self, x: torch.Tensor) -> torch.Tensor:
        wide = gelu(linear(x, self.linear1.weight, self.linear1.bias))
        return linear(wide, self.linear2.weight, self.linear2.bias)


def _blocks(width: int, depth: int, heads: int) -> nn.TransformerEncoder:
    layer = _Block(
        width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(width), enable_nested_tensor=False)


class PointMAE(nn.Module):
    """Masked autoencoder of patches.

    Args:
        groups: patches.
        size: points of a patch.
        width: channels of a token.
        depth: blocks of the encoder.
        decoder_depth: blocks of the decoder.
        heads: attention heads.
        mask_ratio: share of the patches that is masked.
    """

    def __init__(
        self,
        groups: int = 64,
        size: int = 32,
        width: int = 384,
        depth: int = 12,
        decoder_depth: int = 4,
        heads: int = 6,
        mask_ratio: float = 0.6,
    ) -> None:
        super().__init__()
        if not 0 < mask_ratio < 1:
            raise ValueError(f"mask_ratio must be in (0, 1), got {mask_ratio}")
        self.grouping = Grouping(groups, size)
        self.masked = max(1, int(mask_ratio * groups))
        self.patch_encoder = _PatchEncoder(width)
        self.encoder_position, self.decoder_position = _position(width), _position(width)
        self.encoder = _blocks(width, depth, heads)
        self.decoder = _blocks(width, decoder_depth, heads)
        self.mask_token = nn.Parameter(torch.zeros(width))
        nn.init.trunc_normal_(self.mask_token, std=0.02)
        self.restore = Linear(width, 3 * size)

    def encode(self, xyz: torch.Tensor) -> torch.Tensor:
        """(B, N, 3) -> tokens (B, G, width) of all patches, none masked."""
        patches, centres = self.grouping(xyz)
        tokens = self.patch_encoder(patches) + self.encoder_position(centres)
        out: torch.Tensor = self.encoder(tokens)
        return out

    def forward(self, xyz: torch.Tensor) -> torch.Tensor:
        """(B, N, 3) -> the loss of restoring masked patches, drawn anew at each call."""
        patches, centres = self.grouping(xyz)
        batch, groups, size, _ = patches.shape
        order = torch.rand(batch, groups).argsort(dim=1).to(xyz.device)
        hidden, seen = order[:, : self.masked], order[:, self.masked :]

        def pick(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            spread = index.reshape(*index.shape, *[1] * (values.ndim - 2))
            return values.gather(1, spread.expand(*index.shape, *values.shape[2:]))

        tokens = self.patch_encoder(pick(patches, seen))
        encoded = self.encoder(tokens + self.encoder_position(pick(centres, seen)))
        asked = self.mask_token.expand(batch, self.masked, -1)
        position = self.decoder_position(torch.cat([pick(centres, seen), pick(centres, hidden)], 1))
        decoded = self.decoder(torch.cat([encoded, asked], 1) + position)
        made = self.restore(decoded[:, -self.masked :]).view(-1, size, 3)
        loss, _ = chamfer_distance(made, pick(patches, hidden).reshape(-1, size, 3))
        if isinstance(loss, tuple):
            raise ValueError("chamfer_distance must reduce to one number, got a pair")
        return loss
