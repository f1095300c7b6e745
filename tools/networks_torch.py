"""Networks of PyTorch that tools/export_transformers.py exports: the table, and what is no decoder.

`NETWORKS` maps a name to a function that makes a `Network`, of its real size or as small as a test
wants it.  Weights are seeded, nothing is downloaded.  What goes token by token is in
`decoders_torch.py`, the modules of decoders of images are in `image_decoders.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "pytorch"))

from families import FAMILIES, HALVES, SMALL, VISION, hf
from torch_zoo import import_timm, seeded

from image_decoders import DCGAN, Segmentation, UNet


@dataclass(frozen=True)
class Input:
    """A tensor that a network takes: extents are numbers, names, or sums of names ("a + b").

    Elements are normal numbers; ids below `below` if that is given; ones if `mask`, but for the
    last quarter of the last row of a batch of several.
    """

    shape: tuple[int | str, ...]
    below: int = 0
    mask: bool = False

    def draw(self, sizes: Mapping[str, int], generator: torch.Generator) -> torch.Tensor:
        """Return a tensor of this kind, where named extents have these sizes."""
        shape = tuple(e if isinstance(e, int) else extent(e, sizes) for e in self.shape)
        if self.mask:
            ones = torch.ones(shape, dtype=torch.int64)
            if len(ones) > 1:
                ones[-1, -(shape[-1] // 4) :] = 0
            return ones
        if self.below:
            return torch.randint(0, self.below, shape, generator=generator)
        return torch.randn(shape, generator=generator)


def extent(text: str, sizes: Mapping[str, int]) -> int:
    """Return what a sum of names is for these sizes."""
    return sum(sizes[name] for name in text.split(" + "))


@dataclass(frozen=True)
class Network:
    """A module that takes and returns tensors alone, in the order of these names.

    `sizes` are the named extents that it is usually run with, and measured with.
    """

    module: nn.Module
    inputs: dict[str, Input]
    outputs: tuple[str, ...]
    sizes: dict[str, int] = field(default_factory=lambda: {"batch_size": 1})

    def draw(self, sizes: Mapping[str, int], seed: int) -> dict[str, torch.Tensor]:
        """Return inputs for these sizes."""
        generator = torch.Generator().manual_seed(seed)
        return {name: x.draw(sizes, generator) for name, x in self.inputs.items()}


Make = Callable[[bool], Network]
NETWORKS: dict[str, Make] = {}


def network(name: str) -> Callable[[Make], Make]:
    """Add what makes a network, which is told if it shall be small, to the table."""

    def add(make: Make) -> Make:
        NETWORKS[name] = make
        return make

    return add


def of(kind: str, config: str, **settings: Any) -> nn.Module:
    """Return a model of transformers for a configuration, with seeded weights."""
    torch.manual_seed(0)
    return seeded(getattr(hf, kind)(getattr(hf, config)(**settings)))


class Chosen(nn.Module):  # type: ignore[misc]  # mypy sees no torch
    """A model of transformers whose inputs have these names; some fields of what it returns."""

    def __init__(self, model: nn.Module, inputs: tuple[str, ...], fields: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.inputs, self.fields = model, inputs, fields

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        named = dict(zip(self.inputs, tensors, strict=True))
        result = self.model(**named, return_dict=True)
        return tuple(result[name] for name in self.fields)


def chosen(
    model: nn.Module, inputs: dict[str, Input], *fields: str, sizes: dict[str, int] | None = None
) -> Network:
    """Return a network that is a model of transformers itself."""
    module = Chosen(model, tuple(inputs), fields).eval()
    return Network(module, inputs, fields, sizes or {"batch_size": 1})


# ── texts ──

TEXT = ("batch_size", "sequence_length")


def text_inputs(vocabulary: int) -> dict[str, Input]:
    """Return what encoders of texts take."""
    return {
        "input_ids": Input(TEXT, below=vocabulary),
        "attention_mask": Input(TEXT, mask=True),
        "token_type_ids": Input(TEXT, below=2),
    }


def text_sizes(small: bool) -> dict[str, int]:
    """Return the size of a text: one of 128 tokens, but for small networks."""
    return {"batch_size": 1, "sequence_length": 12 if small else 128}


@network("bert_base_pooled")
def bert_base_pooled(small: bool) -> Network:
    """BERT-base and its pooler."""
    model = of("BertModel", "BertConfig", **(SMALL if small else {}))
    return chosen(model, text_inputs(model.config.vocab_size), "last_hidden_state",
                  "pooler_output", sizes=text_sizes(small))  # fmt: skip


class Sentence(nn.Module):  # type: ignore[misc]
    """The mean of what an encoder says of the tokens that are there, of length 1."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor
    ) -> tuple[torch.Tensor]:
        states = self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=kinds)[0]
        present = mask.unsqueeze(-1).expand(states.size()).float()
        mean = (states * present).sum(1) / present.sum(1).clamp(min=1e-9)
        return (nn.functional.normalize(mean, p=2, dim=1),)


@network("minilm_l6_pooled")
def minilm_l6_pooled(small: bool) -> Network:
    """MiniLM of six layers with the pooling of sentence-transformers."""
    real = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}
    model = of("BertModel", "BertConfig", **(SMALL if small else real))
    return Network(Sentence(model).eval(), text_inputs(model.config.vocab_size),
                   ("sentence_embedding",), text_sizes(small))  # fmt: skip


# ── images ──


def images(side: int | tuple[int, int]) -> dict[str, Input]:
    """Return what networks on images of one size take."""
    sides = (side, side) if isinstance(side, int) else side
    return {"pixel_values": Input(("batch_size", 3, *sides))}


@network("vit_s")
def vit_s(small: bool) -> Network:
    """ViT-S of timm, which writes attention its own way."""
    torch.manual_seed(0)
    more = {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 4} if small else {}
    model = seeded(import_timm().create_model("vit_small_patch16_224", **more))
    return Network(model, images(32 if small else 224), ("logits",))


@network("vit_b")
def vit_b(small: bool) -> Network:
    """ViT-B of transformers."""
    model = of("ViTForImageClassification", "ViTConfig", num_labels=1000,
               **(VISION if small else {}))  # fmt: skip
    return chosen(model, images(model.config.image_size), "logits")


@network("swin_t")
def swin_t(small: bool) -> Network:
    """Swin-T: attention in windows that are shifted, with biases by relative position."""
    tiny = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2],
            "num_heads": [2, 4], "window_size": 4}  # fmt: skip
    model = of("SwinForImageClassification", "SwinConfig", num_labels=1000,
               **(tiny if small else {}))  # fmt: skip
    return chosen(model, images(model.config.image_size), "logits")


@network("detr")
def detr(small: bool) -> Network:
    """DETR on a ResNet-50: boxes and labels of a fixed number of objects."""
    if small:
        model, _ = FAMILIES["detr"]()
    else:
        backbone = hf.ResNetConfig(out_features=["stage4"])
        model = of("DetrForObjectDetection", "DetrConfig", backbone_config=backbone,
                   use_timm_backbone=False, use_pretrained_backbone=False)  # fmt: skip
    return chosen(model, images((64, 64) if small else (480, 640)), "logits", "pred_boxes")


# ── images and texts ──

CLIP_SMALL: dict[str, Any] = {
    "text_config": SMALL, "vision_config": VISION, "projection_dim": 16,
}  # fmt: skip


def clip_model(small: bool) -> nn.Module:
    """Return CLIP with the ViT-B/32."""
    return of("CLIPModel", "CLIPConfig", **(CLIP_SMALL if small else {}))


def clip_text_inputs(model: nn.Module) -> dict[str, Input]:
    """Return what its tower of texts takes."""
    inputs = text_inputs(model.config.text_config.vocab_size)
    return {name: inputs[name] for name in ("input_ids", "attention_mask")}


def clip_sizes(small: bool) -> dict[str, int]:
    """Return the sizes of what it compares: one image with one text of 77 tokens."""
    return {"batch_size": 1, "sequence_length": 12 if small else 77}


@network("clip")
def clip(small: bool) -> Network:
    """Both towers of CLIP, and how alike images and texts are."""
    model = clip_model(small)
    pixels = images(model.config.vision_config.image_size)["pixel_values"]
    inputs = {**clip_text_inputs(model),
              "pixel_values": Input(("image_batch_size", *pixels.shape[1:]))}  # fmt: skip
    return chosen(model, inputs, "logits_per_image", "logits_per_text", "text_embeds",
                  "image_embeds", sizes={**clip_sizes(small), "image_batch_size": 1})  # fmt: skip


class Tower(nn.Module):  # type: ignore[misc]
    """One tower of CLIP and its projection."""

    def __init__(self, tower: nn.Module, projection: nn.Module, inputs: tuple[str, ...]) -> None:
        super().__init__()
        self.tower, self.projection, self.inputs = tower, projection, inputs

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor]:
        named = dict(zip(self.inputs, tensors, strict=True))
        return (self.projection(self.tower(**named).pooler_output),)


@network("clip_image")
def clip_image(small: bool) -> Network:
    """CLIP's tower of images."""
    model = clip_model(small)
    inputs = images(model.config.vision_config.image_size)
    tower = Tower(model.vision_model, model.visual_projection, tuple(inputs))
    return Network(tower.eval(), inputs, ("image_embeds",))


@network("clip_text")
def clip_text(small: bool) -> Network:
    """CLIP's tower of texts."""
    model = clip_model(small)
    inputs = clip_text_inputs(model)
    tower = Tower(model.text_model, model.text_projection, tuple(inputs))
    return Network(tower.eval(), inputs, ("text_embeds",), clip_sizes(small))


# ── sounds ──


class LogMel(nn.Module):  # type: ignore[misc]
    """Whisper's front end: waves at 16 kHz to the logarithms of their powers in bands of mel."""

    def __init__(self, bands: int) -> None:
        super().__init__()
        filters = import_module("transformers.audio_utils").mel_filter_bank(
            num_frequency_bins=201, num_mel_filters=bands, min_frequency=0.0,
            max_frequency=8000.0, sampling_rate=16000, norm="slaney", mel_scale="slaney",
        )  # fmt: skip
        self.register_buffer("filters", torch.tensor(filters.T, dtype=torch.float32))
        self.register_buffer("window", torch.hann_window(400))

    def forward(self, waves: torch.Tensor) -> tuple[torch.Tensor]:
        # The older exporter knows no complex numbers.
        pairs = torch.stft(waves, 400, 160, window=self.window, return_complex=False)
        powers = pairs[..., :-1, :].square().sum(-1)
        logarithms = (self.filters @ powers).clamp(min=1e-10).log10()
        floor = logarithms.amax((1, 2), keepdim=True) - 8.0
        return ((torch.maximum(logarithms, floor) + 4.0) / 4.0,)


@network("whisper_tiny_mel")
def whisper_tiny_mel(small: bool) -> Network:
    """Whisper's front end, on 30 seconds."""
    samples = 3200 if small else 480000
    return Network(LogMel(80).eval(), {"waves": Input(("batch_size", samples))},
                   ("input_features",))  # fmt: skip


def whisper_model(small: bool) -> nn.Module:
    """Return Whisper-tiny, which is the default of its configuration."""
    tiny = {**HALVES, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 40}
    return of("WhisperForConditionalGeneration", "WhisperConfig", **(tiny if small else {}))


@network("whisper_tiny_encoder")
def whisper_tiny_encoder(small: bool) -> Network:
    """The encoder of Whisper-tiny."""
    model = whisper_model(small).model.encoder
    config = model.config
    frames = 2 * config.max_source_positions
    inputs = {"input_features": Input(("batch_size", config.num_mel_bins, frames))}
    return chosen(model, inputs, "last_hidden_state")


# ── decoders of images ──


@network("unet")
def unet(small: bool) -> Network:
    """UNet: transposed convolutions beside skipped features."""
    torch.manual_seed(0)
    module = UNet((8, 16, 32)) if small else UNet()
    return Network(seeded(module), images(32 if small else 256), ("logits",))


@network("dcgan")
def dcgan(small: bool) -> Network:
    """DCGAN's generator."""
    torch.manual_seed(0)
    latent, width = (16, 8) if small else (100, 64)
    inputs = {"latent": Input(("batch_size", latent, 1, 1))}
    return Network(seeded(DCGAN(latent, width)), inputs, ("image",))


@network("segmentation_decoder")
def segmentation_decoder(small: bool) -> Network:
    """A decoder behind the four scales of a ResNet-50 on 512×512."""
    torch.manual_seed(0)
    channels = (8, 16, 24, 32) if small else (256, 512, 1024, 2048)
    side = 16 if small else 128
    inputs = {f"scale_{i}": Input(("batch_size", n, side >> i, side >> i))
              for i, n in enumerate(channels)}  # fmt: skip
    module = Segmentation(channels, 16 if small else 128, 5 if small else 21)
    return Network(seeded(module), inputs, ("logits",))
