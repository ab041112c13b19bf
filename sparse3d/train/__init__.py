"""Training of the segmentation networks: streams of clouds, losses, schedules, the loop."""

from sparse3d.train.config import TrainConfig, load_train_config
from sparse3d.train.losses import lovasz_softmax, segmentation_loss
from sparse3d.train.schedule import rate_factor
from sparse3d.train.sync_norm import SyncBatchNorm, synchronise
from sparse3d.train.trainer import Outcome, Trainer

__all__ = [
    "Outcome",
    "SyncBatchNorm",
    "TrainConfig",
    "Trainer",
    "load_train_config",
    "lovasz_softmax",
    "rate_factor",
    "segmentation_loss",
    "synchronise",
]
