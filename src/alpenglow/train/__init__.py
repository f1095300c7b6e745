"""Training: a graph's parameters are changed by the gradient of a loss, step by step.

A step is one graph and one program: forward, backward and update, in place where that can be.
"""

from alpenglow.autodiff import stop_gradient
from alpenglow.quant.aware import quantization_aware
from alpenglow.train.history import Epoch
from alpenglow.train.layers import batch_norm, conv, dense, embedding, layer_norm, max_pool
from alpenglow.train.losses import (
    accuracy,
    binary_cross_entropy,
    cross_entropy,
    ctc,
    dropout,
    l1,
    mse,
    triplet,
)
from alpenglow.train.optimizers import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop
from alpenglow.train.parameters import trainable
from alpenglow.train.schedules import cosine, steps, warmup
from alpenglow.train.supervised import supervise
from alpenglow.train.trainer import Trainer

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Epoch",
    "Optimizer",
    "RMSprop",
    "Trainer",
    "accuracy",
    "batch_norm",
    "binary_cross_entropy",
    "conv",
    "cosine",
    "cross_entropy",
    "ctc",
    "dense",
    "dropout",
    "embedding",
    "l1",
    "layer_norm",
    "max_pool",
    "mse",
    "quantization_aware",
    "steps",
    "stop_gradient",
    "supervise",
    "trainable",
    "triplet",
    "warmup",
]
