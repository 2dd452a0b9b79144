"""The update rules of the recipes and the course of their learning rates."""

from edgefront.core.training.optimizers.groups import make_optimizer, set_learning_rate
from edgefront.core.training.optimizers.lamb import Lamb, NvLamb
from edgefront.core.training.optimizers.schedules import learning_rate

__all__ = ["Lamb", "NvLamb", "learning_rate", "make_optimizer", "set_learning_rate"]
