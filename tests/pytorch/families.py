"""Families of transformers, each as a tiny network that is built by hand from a configuration.

`FAMILIES` maps a name to a function that makes a module and the keyword arguments of its forward:
nothing is downloaded.  `TEXT` names those that take ``input_ids`` of any batch and length.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch_zoo import import_torchvision, seeded

import_torchvision()  # transformers does where it is, and fails
hf = import_module("transformers")

Family = tuple[nn.Module, dict[str, Any]]
Make = Callable[[], Family]

FAMILIES: dict[str, Make] = {}
TEXT: list[str] = []

SMALL: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 37, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
"""What most configurations of language models are made small with."""

VISION: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37,
    "image_size": 32, "patch_size": 8, "num_channels": 3,
}  # fmt: skip


def built(kind: str, config: Any, **inputs: Any) -> Family:
    """Return a model of a class for a configuration, with random weights, and its inputs."""
    torch.manual_seed(0)
    config.use_cache = False
    return seeded(getattr(hf, kind)(config)), inputs


def tokens(rows: int = 2, length: int = 7, seed: int = 0) -> torch.Tensor:
    """Return ids of tokens, none of which is special."""
    return torch.randint(5, 90, (rows, length), generator=torch.Generator().manual_seed(seed))


def reals(*shape: int, seed: int = 0) -> torch.Tensor:
    """Return normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def text(name: str, kind: str, config: str, masked: bool = False, **settings: Any) -> None:
    """Add a family that takes tokens, and a mask if `masked`."""

    def make() -> Family:
        ids = tokens()
        inputs: dict[str, Any] = {"input_ids": ids}
        if masked:
            mask = torch.ones_like(ids)
            mask[1, -2:] = 0
            inputs["attention_mask"] = mask
        wanted = {k: v for k, v in {**SMALL, **settings}.items() if v is not None}
        return built(kind, getattr(hf, config)(**wanted), **inputs)

    FAMILIES[name] = make
    TEXT.append(name)


def pair(name: str, kind: str, config: str, **settings: Any) -> None:
    """Add an encoder and decoder that take tokens."""

    def make() -> Family:
        return built(kind, getattr(hf, config)(**settings),
                     input_ids=tokens(), decoder_input_ids=tokens(2, 5, 1))  # fmt: skip

    FAMILIES[name] = make


def image(name: str, kind: str, config: str, side: int = 32, **settings: Any) -> None:
    """Add a family that takes images."""

    def make() -> Family:
        return built(kind, getattr(hf, config)(**settings), pixel_values=reals(2, 3, side, side))

    FAMILIES[name] = make


# ── encoders ──

text("bert", "BertForMaskedLM", "BertConfig", masked=True)
text("roberta", "RobertaForSequenceClassification", "RobertaConfig", masked=True)
text("xlm-roberta", "XLMRobertaForTokenClassification", "XLMRobertaConfig")
text("distilbert", "DistilBertForMaskedLM", "DistilBertConfig", masked=True, dim=32, n_layers=2,
     n_heads=4, hidden_dim=37)  # fmt: skip
text("albert", "AlbertForMaskedLM", "AlbertConfig", embedding_size=16)
text("electra", "ElectraForPreTraining", "ElectraConfig", embedding_size=16)
text("deberta", "DebertaModel", "DebertaConfig", relative_attention=True, masked=True,
     pos_att_type=["c2p", "p2c"], max_relative_positions=-1)  # fmt: skip
text("deberta-v2", "DebertaV2Model", "DebertaV2Config", relative_attention=True, masked=True,
     pos_att_type=["c2p", "p2c"], position_buckets=16, norm_rel_ebd="layer_norm",
     share_att_key=True)  # fmt: skip
text("mpnet", "MPNetModel", "MPNetConfig", masked=True)
text("modernbert", "ModernBertModel", "ModernBertConfig", masked=True)
text("funnel", "FunnelModel", "FunnelConfig", block_sizes=[1, 1], num_decoder_layers=1, d_model=32,
     n_head=4, d_head=8, d_inner=37, num_hidden_layers=None)  # fmt: skip
text("xlnet", "XLNetModel", "XLNetConfig", d_model=32, n_layer=2, n_head=4, d_inner=37,
     max_position_embeddings=None)  # fmt: skip
text("roformer", "RoFormerModel", "RoFormerConfig", embedding_size=32)

# ── decoders ──

GPT2: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
text("gpt2", "GPT2LMHeadModel", "GPT2Config", masked=True, **GPT2)
text("gpt-neo", "GPTNeoForCausalLM", "GPTNeoConfig", num_layers=2, num_heads=4, window_size=4,
     attention_types=[[["global", "local"], 1]])  # fmt: skip
text("gpt-neox", "GPTNeoXForCausalLM", "GPTNeoXConfig")
text("gptj", "GPTJForCausalLM", "GPTJConfig", rotary_dim=4, **GPT2)
text("opt", "OPTForCausalLM", "OPTConfig", masked=True, ffn_dim=37, word_embed_proj_dim=32)
text("bloom", "BloomForCausalLM", "BloomConfig", masked=True, n_layer=2, n_head=4)
text("llama", "LlamaForCausalLM", "LlamaConfig", masked=True, num_key_value_heads=2)
text("mistral", "MistralForCausalLM", "MistralConfig", num_key_value_heads=2, sliding_window=4)
text("mixtral", "MixtralForCausalLM", "MixtralConfig", num_key_value_heads=2, num_local_experts=4,
     num_experts_per_tok=2, intermediate_size=64)  # fmt: skip
text("qwen2", "Qwen2ForCausalLM", "Qwen2Config", num_key_value_heads=2)
text("qwen3", "Qwen3ForCausalLM", "Qwen3Config", num_key_value_heads=2, head_dim=8)
text("gemma", "GemmaForCausalLM", "GemmaConfig", num_key_value_heads=1, head_dim=8)
text("gemma2", "Gemma2ForCausalLM", "Gemma2Config", num_key_value_heads=2, head_dim=8,
     sliding_window=4)  # fmt: skip
text("gemma3", "Gemma3ForCausalLM", "Gemma3TextConfig", num_key_value_heads=2, head_dim=8,
     sliding_window=4)  # fmt: skip
text("phi", "PhiForCausalLM", "PhiConfig", partial_rotary_factor=0.5)
text("phi3", "Phi3ForCausalLM", "Phi3Config", num_key_value_heads=2)
text("falcon", "FalconForCausalLM", "FalconConfig", new_decoder_architecture=False,
     multi_query=True, alibi=False)  # fmt: skip
text("stablelm", "StableLmForCausalLM", "StableLmConfig", num_key_value_heads=2)
text("mpt", "MptForCausalLM", "MptConfig", d_model=32, n_layers=2, n_heads=4, expansion_ratio=2,
     max_seq_len=64)  # fmt: skip
text("cohere", "CohereForCausalLM", "CohereConfig", num_key_value_heads=2)
text("olmo2", "Olmo2ForCausalLM", "Olmo2Config", num_key_value_heads=2)
text("granite", "GraniteForCausalLM", "GraniteConfig", num_key_value_heads=2)
text("codegen", "CodeGenForCausalLM", "CodeGenConfig", rotary_dim=4, **GPT2)
text("mamba", "MambaForCausalLM", "MambaConfig", state_size=4, num_hidden_layers=2)
text("mamba2", "Mamba2ForCausalLM", "Mamba2Config", state_size=4, num_heads=8, head_dim=8,
     n_groups=1, chunk_size=4)  # fmt: skip
text("rwkv", "RwkvForCausalLM", "RwkvConfig", attention_hidden_size=32, context_length=64)

# ── encoders with decoders ──

HALVES: dict[str, Any] = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
T5: dict[str, Any] = {
    "vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4,
    "relative_attention_num_buckets": 8, "decoder_start_token_id": 0,
}  # fmt: skip
pair("t5", "T5ForConditionalGeneration", "T5Config", **T5)
pair("mt5", "MT5ForConditionalGeneration", "MT5Config", **T5)
pair("bart", "BartForConditionalGeneration", "BartConfig", **HALVES)
pair("mbart", "MBartForConditionalGeneration", "MBartConfig", **HALVES)
pair("marian", "MarianMTModel", "MarianConfig", **HALVES)
pair("pegasus", "PegasusForConditionalGeneration", "PegasusConfig", **HALVES)
pair("m2m-100", "M2M100ForConditionalGeneration", "M2M100Config", **HALVES)
pair("blenderbot", "BlenderbotForConditionalGeneration", "BlenderbotConfig", **HALVES)

# ── vision ──

image("vit", "ViTForImageClassification", "ViTConfig", **VISION)
image("deit", "DeiTForImageClassification", "DeiTConfig", **VISION)
image("beit", "BeitForImageClassification", "BeitConfig", use_relative_position_bias=True, **VISION)
image("dinov2", "Dinov2Model", "Dinov2Config", **VISION)
image("ijepa", "IJepaModel", "IJepaConfig", **VISION)
image("swin", "SwinForImageClassification", "SwinConfig", image_size=32, patch_size=2,
      embed_dim=16, depths=[1, 2], num_heads=[2, 4], window_size=4)  # fmt: skip
image("swinv2", "Swinv2ForImageClassification", "Swinv2Config", image_size=32, patch_size=2,
      embed_dim=16, depths=[1, 2], num_heads=[2, 4], window_size=4)  # fmt: skip
image("convnext", "ConvNextForImageClassification", "ConvNextConfig", hidden_sizes=[8, 16],
      depths=[1, 1], num_stages=2)  # fmt: skip
image("convnextv2", "ConvNextV2ForImageClassification", "ConvNextV2Config", hidden_sizes=[8, 16],
      depths=[1, 1], num_stages=2)  # fmt: skip
image("resnet", "ResNetForImageClassification", "ResNetConfig", embedding_size=8,
      hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")  # fmt: skip
image("mobilevit", "MobileViTModel", "MobileViTConfig", image_size=64, side=64,
      hidden_sizes=[24, 32, 40], neck_hidden_sizes=[8, 16, 24, 32, 40, 48, 64])  # fmt: skip
image("segformer", "SegformerForSemanticSegmentation", "SegformerConfig", side=64,
      num_encoder_blocks=2, depths=[1, 1], sr_ratios=[4, 2], hidden_sizes=[8, 16],
      patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2],
      decoder_hidden_size=16)  # fmt: skip
image("poolformer", "PoolFormerForImageClassification", "PoolFormerConfig", side=64,
      hidden_sizes=[8, 16], depths=[1, 1], num_encoder_blocks=2, patch_sizes=[7, 3],
      strides=[4, 2], padding=[2, 1])  # fmt: skip
image("yolos", "YolosForObjectDetection", "YolosConfig", **{**VISION, "image_size": [32, 32]},
      num_detection_tokens=5)  # fmt: skip
image("dpt", "DPTForDepthEstimation", "DPTConfig", **{**VISION, "num_hidden_layers": 4},
      is_hybrid=False, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 8, 8],
      fusion_hidden_size=8, neck_ignore_stages=[])  # fmt: skip


def detr() -> Family:
    backbone = hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1],
                               layer_type="basic", out_features=["stage2"])  # fmt: skip
    config = hf.DetrConfig(
        backbone_config=backbone, use_timm_backbone=False, use_pretrained_backbone=False,
        d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=37, decoder_ffn_dim=37, num_queries=5,
    )  # fmt: skip
    return built("DetrForObjectDetection", config, pixel_values=reals(2, 3, 64, 64))


def vision_and_text(name: str, kind: str, config: str, **text_settings: Any) -> None:
    """Add a family that compares images with texts."""

    def make() -> Family:
        halves = {"text_config": {**SMALL, **text_settings}, "vision_config": VISION}
        made = getattr(hf, config)(**halves, projection_dim=16)
        return built(kind, made, input_ids=tokens(), pixel_values=reals(2, 3, 32, 32))

    FAMILIES[name] = make


FAMILIES["detr"] = detr
vision_and_text("clip", "CLIPModel", "CLIPConfig")
vision_and_text("siglip", "SiglipModel", "SiglipConfig")
vision_and_text("blip", "BlipForImageTextRetrieval", "BlipConfig")

# ── audio ──

WAVES: dict[str, Any] = {
    **SMALL, "conv_dim": (8, 8), "conv_kernel": (10, 3), "conv_stride": (5, 2),
    "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "feat_extract_norm": "group",
    "num_feat_extract_layers": 2,
}  # fmt: skip


def sound(name: str, kind: str, config: str, **settings: Any) -> None:
    """Add a family that takes waves."""

    def make() -> Family:
        return built(kind, getattr(hf, config)(**{**WAVES, **settings}),
                     input_values=reals(2, 400))  # fmt: skip

    FAMILIES[name] = make


def whisper() -> Family:
    config = hf.WhisperConfig(**HALVES, num_mel_bins=8, max_source_positions=16,
                              max_target_positions=20)  # fmt: skip
    return built("WhisperForConditionalGeneration", config, input_features=reals(2, 8, 32),
                 decoder_input_ids=tokens(2, 5))  # fmt: skip


def spectrogram() -> Family:
    config = hf.ASTConfig(**{**VISION, "patch_size": 4}, num_mel_bins=16, max_length=24,
                          frequency_stride=4, time_stride=4)  # fmt: skip
    return built("ASTForAudioClassification", config, input_values=reals(2, 24, 16))


FAMILIES["whisper"] = whisper
FAMILIES["ast"] = spectrogram
sound("wav2vec2", "Wav2Vec2ForCTC", "Wav2Vec2Config")
sound("hubert", "HubertModel", "HubertConfig")
sound("wavlm", "WavLMModel", "WavLMConfig", num_buckets=8, max_bucket_distance=16)
sound("unispeech", "UniSpeechModel", "UniSpeechConfig")
sound("sew", "SEWModel", "SEWConfig", squeeze_factor=2)
sound("data2vec-audio", "Data2VecAudioModel", "Data2VecAudioConfig", conv_pos_kernel_size=3)
