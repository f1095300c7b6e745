"""Nets that look at images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from tests.frontends.stablehlo.jaxlib.nets.made import Case, flax, normal


def norm() -> nn.BatchNorm:
    return nn.BatchNorm(use_running_average=True)


class Basic(nn.Module):
    features: int
    stride: int = 1

    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.Conv(self.features, (3, 3), self.stride, use_bias=False)(x)
        y = nn.Conv(self.features, (3, 3), use_bias=False)(nn.relu(norm()(y)))
        if x.shape != y.shape:
            x = norm()(nn.Conv(self.features, (1, 1), self.stride, use_bias=False)(x))
        return nn.relu(x + norm()(y))


class Bottleneck(nn.Module):
    features: int
    stride: int = 1

    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.relu(norm()(nn.Conv(self.features, (1, 1), use_bias=False)(x)))
        y = nn.relu(norm()(nn.Conv(self.features, (3, 3), self.stride, use_bias=False)(y)))
        y = norm()(nn.Conv(4 * self.features, (1, 1), use_bias=False)(y))
        if x.shape != y.shape:
            x = norm()(nn.Conv(4 * self.features, (1, 1), self.stride, use_bias=False)(x))
        return nn.relu(x + 0.2 * y)


class ResNet(nn.Module):
    block: Any
    stages: tuple[int, ...]
    width: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(norm()(nn.Conv(self.width, (7, 7), 2, use_bias=False)(x)))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for i, count in enumerate(self.stages):
            for j in range(count):
                x = self.block(self.width * 2**i, 2 if i and not j else 1)(x)
        return nn.Dense(10)(x.mean((1, 2)))


class MobileNet(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu6(norm()(nn.Conv(8, (3, 3), 2)(x)))
        for features, stride in ((8, 1), (12, 2), (12, 1)):
            y = nn.relu6(norm()(nn.Conv(48, (1, 1), use_bias=False)(x)))
            y = nn.Conv(48, (3, 3), stride, feature_group_count=48, use_bias=False)(y)
            y = norm()(nn.Conv(features, (1, 1), use_bias=False)(nn.relu6(norm()(y))))
            x = x + y if x.shape == y.shape else y
        return nn.Dense(10)(nn.hard_swish(x).mean((1, 2)))


class EfficientNet(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.swish(nn.Conv(8, (3, 3), 2)(x))
        for kernel in (3, 5):
            y = nn.swish(norm()(nn.Conv(32, (1, 1))(x)))
            y = nn.swish(norm()(nn.Conv(32, (kernel, kernel), feature_group_count=32)(y)))
            s = nn.swish(nn.Dense(4)(y.mean((1, 2), keepdims=True)))
            x = x + norm()(nn.Conv(8, (1, 1))(y * nn.sigmoid(nn.Dense(32)(s))))
        return nn.Dense(10)(x.mean((1, 2)))


class ConvNeXt(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.LayerNorm()(nn.Conv(16, (4, 4), 4)(x))
        for i in range(2):
            y = nn.LayerNorm()(nn.Conv(16, (7, 7), feature_group_count=16)(x))
            y = nn.Dense(16)(nn.gelu(nn.Dense(64)(y)))
            x = x + y * self.param(f"scale{i}", nn.initializers.constant(0.1), (16,))
        return nn.Dense(10)(nn.LayerNorm()(x.mean((1, 2))))


class UNet(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        kept = []
        for features in (8, 16):
            x = nn.relu(nn.Conv(features, (3, 3))(x))
            kept.append(x)
            x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.Conv(32, (3, 3))(x))
        for features, skip in zip((16, 8), reversed(kept), strict=True):
            x = nn.ConvTranspose(features, (2, 2), (2, 2))(x)
            x = nn.relu(nn.Conv(features, (3, 3))(jnp.concatenate([x, skip], -1)))
        return nn.Conv(2, (1, 1))(x)


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(y, y)
        return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(64)(nn.LayerNorm()(x))))


class ViT(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(32, (8, 8), 8, padding="VALID")(x)
        x = x.reshape(x.shape[0], -1, 32)
        token = self.param("token", nn.initializers.normal(), (1, 1, 32))
        x = jnp.concatenate([jnp.broadcast_to(token, (x.shape[0], 1, 32)), x], 1)
        x = x + self.param("places", nn.initializers.normal(), (1, x.shape[1], 32))
        for _ in range(2):
            x = Encoder()(x)
        return nn.Dense(10)(nn.LayerNorm()(x)[:, 0])


class DenseNet(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(8, (3, 3))(x)
        for _ in range(3):
            x = jnp.concatenate([x, nn.Conv(8, (3, 3))(nn.relu(norm()(x)))], -1)
        x = nn.avg_pool(nn.Conv(16, (1, 1))(x), (2, 2), (2, 2))
        return nn.Dense(10)(x.max((1, 2)))


class Inception(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        pooled = nn.avg_pool(x, (3, 3), (1, 1), "SAME", count_include_pad=False)
        branches = [
            nn.Conv(4, (1, 1))(x),
            nn.Conv(6, (1, 7))(nn.Conv(4, (7, 1))(x)),
            nn.Conv(6, (3, 3), kernel_dilation=2)(nn.Conv(4, (1, 1))(x)),
            nn.Conv(4, (1, 1))(pooled),
        ]
        return nn.relu(jnp.concatenate(branches, -1))


class Pyramid(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        levels = []
        for features in (8, 16, 32):
            x = nn.relu(nn.Conv(features, (3, 3), 2)(x))
            levels.append(nn.Conv(8, (1, 1))(x))
        top = levels.pop()
        outputs = [top]
        while levels:
            below = levels.pop()
            top = below + jax.image.resize(top, below.shape, "bilinear")
            outputs.append(nn.Conv(8, (3, 3))(top))
        return outputs


class Mixer(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(16, (8, 8), 8)(x).reshape(x.shape[0], -1, 16)
        y = nn.LayerNorm()(x).swapaxes(1, 2)
        x = x + nn.Dense(x.shape[1])(nn.gelu(nn.Dense(24)(y))).swapaxes(1, 2)
        return nn.Dense(10)((x + nn.Dense(16)(nn.gelu(nn.Dense(32)(nn.LayerNorm()(x))))).mean(1))


class Windows(nn.Module):
    """Attention within windows, the second time of an image that is rolled."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(16, (4, 4), 4)(x)
        n, h, w, c = x.shape
        regions = jnp.zeros((h, w)).at[-2:].add(1).at[:, -2:].add(2)
        for shift in (0, 2):
            y = jnp.roll(nn.LayerNorm()(x), (-shift, -shift), (1, 2))
            y = y.reshape(n, h // 4, 4, w // 4, 4, c).swapaxes(2, 3).reshape(n, -1, 16, c)
            r = regions.reshape(h // 4, 4, w // 4, 4).swapaxes(1, 2).reshape(1, -1, 1, 16)
            mask = (r[..., None] == r[..., None, :]) if shift else None
            y = nn.MultiHeadDotProductAttention(num_heads=2)(y, y, mask=mask)
            y = y.reshape(n, h // 4, w // 4, 4, 4, c).swapaxes(2, 3).reshape(n, h, w, c)
            x = x + jnp.roll(y, (shift, shift), (1, 2))
        return nn.Dense(10)(x.mean((1, 2)))


class Shuffle(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(16, (3, 3), 2)(x)
        y = nn.relu(norm()(nn.Conv(16, (1, 1), feature_group_count=4)(x)))
        y = y.reshape(*y.shape[:-1], 4, 4).swapaxes(-1, -2).reshape(y.shape)
        y = norm()(nn.Conv(16, (3, 3), feature_group_count=16)(y))
        return nn.relu(x + nn.Conv(16, (1, 1), feature_group_count=4)(y))


class Separable3D(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(nn.Conv(8, (1, 3, 3), (1, 2, 2))(x))
        x = nn.relu(nn.Conv(8, (3, 1, 1))(x))
        return nn.Dense(10)(nn.max_pool(x, (2, 2, 2), (2, 2, 2)).mean((1, 2, 3)))


class Detector(nn.Module):
    """Boxes at the places whose scores are best."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.leaky_relu(nn.Conv(16, (3, 3), 4)(x))
        scores = nn.Conv(1, (1, 1))(x).reshape(x.shape[0], -1)
        boxes = nn.sigmoid(nn.Conv(4, (1, 1))(x)).reshape(x.shape[0], -1, 4)
        best, at = jax.lax.top_k(scores, 5)
        return best, jnp.take_along_axis(boxes, at[..., None], 1)


IMAGE = normal(2, 32, 32, 3)

NETS: dict[str, Callable[[], Case]] = {
    "resnet18": lambda: flax(ResNet(Basic, (2, 2, 2, 2), 16), IMAGE),
    "resnet50": lambda: flax(ResNet(Bottleneck, (3, 4, 6, 3), 64), normal(1, 64, 64, 3)),
    "mobilenet": lambda: flax(MobileNet(), IMAGE),
    "efficientnet": lambda: flax(EfficientNet(), IMAGE),
    "convnext": lambda: flax(ConvNeXt(), IMAGE),
    "unet": lambda: flax(UNet(), IMAGE),
    "vit": lambda: flax(ViT(), IMAGE),
    "densenet": lambda: flax(DenseNet(), IMAGE),
    "inception": lambda: flax(Inception(), IMAGE),
    "pyramid": lambda: flax(Pyramid(), IMAGE),
    "mixer": lambda: flax(Mixer(), IMAGE),
    "shifted_windows": lambda: flax(Windows(), IMAGE),
    "shuffled_channels": lambda: flax(Shuffle(), IMAGE),
    "video": lambda: flax(Separable3D(), normal(2, 6, 16, 16, 3)),
    "detector": lambda: flax(Detector(), IMAGE),
}
