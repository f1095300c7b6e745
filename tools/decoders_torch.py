"""Decoders of transformers that go token by token, by the conventions of optimum's exports.

What was computed of earlier tokens goes in as `past_key_values.I.key` and `.value`, and with what
this step adds out as `present.I.key` and `.value`.  Where there is an encoder the names are
`past_key_values.I.decoder.key` and so on, and those of the encoder go in beside them; a decoder
without a past makes these from the encoder's states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from networks_torch import Input, Network, chosen, network, of, text_inputs, whisper_model

from families import GPT2, SMALL, T5, hf  # isort: skip  # networks_torch says where it is

PARTS = ("key", "value")
PAST = "past_sequence_length"
STEP = ("batch_size", "sequence_length")
TOTAL = f"{PAST} + sequence_length"


def paired(tensors: tuple[torch.Tensor, ...]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return keys and values of each layer."""
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def tensors_of(cache: Any) -> tuple[torch.Tensor, ...]:
    """Return keys and values of all layers in a row."""
    return tuple(x for layer in cache.layers for x in (layer.keys, layer.values))


# ── decoders alone ──


class WithPast(nn.Module):  # type: ignore[misc]  # mypy sees no torch
    """A language model that takes ids, a mask, positions, and keys and values of earlier tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, *past: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        cache = hf.DynamicCache(paired(past))
        result = self.model(input_ids=ids, attention_mask=mask, position_ids=positions,
                            past_key_values=cache, use_cache=True)  # fmt: skip
        return result.logits, *tensors_of(cache)


def with_past(model: nn.Module, small: bool) -> Network:
    """Return a language model as a step: one token after 127."""
    config = model.config
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    width = config.hidden_size // config.num_attention_heads
    past = Input(("batch_size", heads, PAST, width))
    names = [f"{i}.{part}" for i in range(config.num_hidden_layers) for part in PARTS]
    inputs = {
        "input_ids": Input(STEP, below=config.vocab_size),
        "attention_mask": Input(("batch_size", TOTAL), mask=True),
        "position_ids": Input(STEP, below=32),
        **{f"past_key_values.{name}": past for name in names},
    }
    sizes = {"batch_size": 1, "sequence_length": 1, PAST: 7 if small else 127}
    outputs = ("logits", *(f"present.{name}" for name in names))
    return Network(WithPast(model).eval(), inputs, outputs, sizes)


@network("gpt2_with_past")
def gpt2_with_past(small: bool) -> Network:
    """GPT-2 of 124 million weights."""
    return with_past(of("GPT2LMHeadModel", "GPT2Config", **(GPT2 if small else {})), small)


LLAMA: dict[str, Any] = {
    "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True,
}  # fmt: skip


@network("llama_with_past")
def llama_with_past(small: bool) -> Network:
    """Llama as SmolLM2-135M has it: rotary positions, three query heads to one of keys."""
    settings = {**SMALL, "num_key_value_heads": 2} if small else LLAMA
    return with_past(of("LlamaForCausalLM", "LlamaConfig", **settings), small)


# ── decoders behind an encoder ──

MERGED = {
    f"{name}_merged": (name, f"{name}_with_past")
    for name in ("whisper_tiny_decoder", "t5_small_decoder")
}
"""Two networks each, which are exported as one."""

Decode = Callable[[nn.Module, torch.Tensor, Any, dict[str, torch.Tensor]], torch.Tensor]


class Behind(nn.Module):  # type: ignore[misc]
    """A decoder that begins: of the encoder's states it makes keys and values of each layer."""

    def __init__(self, model: nn.Module, decode: Decode, masked: bool) -> None:
        super().__init__()
        self.model, self.decode, self.masked = model, decode, masked

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mask = {"encoder_attention_mask": tensors[0]} if self.masked else {}
        ids, states = tensors[-2:]
        cache = hf.EncoderDecoderCache(hf.DynamicCache(), hf.DynamicCache())
        logits = self.decode(self.model, ids, cache, {"encoder_hidden_states": states, **mask})
        return logits, *merged(tensors_of(cache.self_attention_cache),
                               tensors_of(cache.cross_attention_cache))  # fmt: skip


class BehindWithPast(nn.Module):  # type: ignore[misc]
    """A decoder that goes on: it adds keys and values of its own, those of the encoder stay."""

    def __init__(self, model: nn.Module, decode: Decode, masked: bool) -> None:
        super().__init__()
        self.model, self.decode, self.masked = model, decode, masked

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mask = {"encoder_attention_mask": tensors[0]} if self.masked else {}
        ids, *past = tensors[self.masked :]
        own = hf.DynamicCache([(past[i], past[i + 1]) for i in range(0, len(past), 4)])
        theirs = hf.DynamicCache([(past[i], past[i + 1]) for i in range(2, len(past), 4)])
        # Layers ask if there are states, and take keys and values from the cache.
        states = past[2].new_zeros(*past[2].shape[::2], self.model.config.d_model)
        cache = hf.EncoderDecoderCache(own, theirs)
        logits = self.decode(self.model, ids, cache, {"encoder_hidden_states": states, **mask})
        return logits, *tensors_of(own)


def merged(own: tuple[Any, ...], theirs: tuple[Any, ...]) -> list[Any]:
    """Return what is of the decoder and of the encoder, layer by layer."""
    return [x for i in range(0, len(own), 2) for x in (*own[i : i + 2], *theirs[i : i + 2])]


def behind(
    model: nn.Module, decode: Decode, encoded: int | str, masked: bool, past: bool, small: bool,
    layers: int, heads: int, width: int,
) -> Network:  # fmt: skip
    """Return a decoder behind an encoder: its first step, of four tokens, or one with a past."""
    sides = ("decoder", "encoder")
    names = [f"{i}.{side}.{part}" for i in range(layers) for side in sides for part in PARTS]
    mask = Input(("batch_size", encoded), mask=True)
    inputs = {"encoder_attention_mask": mask} if masked else {}
    inputs["input_ids"] = Input(STEP, below=model.config.vocab_size)
    sizes = {"batch_size": 1, "sequence_length": 4}
    if isinstance(encoded, str):
        sizes[encoded] = 12 if small else 128
    if not past:
        states = Input(("batch_size", encoded, model.config.d_model))
        outputs = ("logits", *(f"present.{name}" for name in names))
        module = Behind(model, decode, masked).eval()
        return Network(module, {**inputs, "encoder_hidden_states": states}, outputs, sizes)
    for name in names:
        length = PAST if ".decoder." in name else encoded
        inputs[f"past_key_values.{name}"] = Input(("batch_size", heads, length, width))
    outputs = ("logits", *(f"present.{name}" for name in names if ".decoder." in name))
    sizes = {**sizes, "sequence_length": 1, PAST: 7 if small else 63}
    return Network(BehindWithPast(model, decode, masked).eval(), inputs, outputs, sizes)


def decode_whisper(
    model: nn.Module, ids: torch.Tensor, cache: Any, encoder: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Return the logits of Whisper's decoder."""
    states = model.model.decoder(input_ids=ids, past_key_values=cache, use_cache=True, **encoder)
    return model.proj_out(states.last_hidden_state)


def decode_t5(
    model: nn.Module, ids: torch.Tensor, cache: Any, encoder: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Return the logits of T5's decoder, of states that are scaled where the weights are tied."""
    states = model.decoder(input_ids=ids, past_key_values=cache, use_cache=True, **encoder)
    scale = model.config.d_model**-0.5 if model.config.tie_word_embeddings else 1.0
    return model.lm_head(states.last_hidden_state * scale)


def whisper_decoder(small: bool, past: bool) -> Network:
    model = whisper_model(small)
    config = model.config
    heads = config.decoder_attention_heads
    return behind(model, decode_whisper, config.max_source_positions, False, past, small,
                  config.decoder_layers, heads, config.d_model // heads)  # fmt: skip


def t5_decoder(small: bool, past: bool) -> Network:
    model = t5_model(small)
    config = model.config
    return behind(model, decode_t5, "encoder_sequence_length", True, past, small,
                  config.num_decoder_layers, config.num_heads, config.d_kv)  # fmt: skip


def t5_model(small: bool) -> nn.Module:
    """Return T5-small, which is the default of its configuration."""
    return of("T5ForConditionalGeneration", "T5Config", **(T5 if small else {}))


@network("whisper_tiny_decoder")
def whisper_tiny_decoder(small: bool) -> Network:
    """The first step of Whisper-tiny's decoder."""
    return whisper_decoder(small, past=False)


@network("whisper_tiny_decoder_with_past")
def whisper_tiny_decoder_with_past(small: bool) -> Network:
    """A later step of Whisper-tiny's decoder."""
    return whisper_decoder(small, past=True)


@network("t5_small_encoder")
def t5_small_encoder(small: bool) -> Network:
    """The encoder of T5-small: biases by relative position, norms without means."""
    encoder = t5_model(small).encoder
    inputs = text_inputs(encoder.config.vocab_size)
    del inputs["token_type_ids"]
    sizes = {"batch_size": 1, "sequence_length": 12 if small else 128}
    return chosen(encoder, inputs, "last_hidden_state", sizes=sizes)


@network("t5_small_decoder")
def t5_small_decoder(small: bool) -> Network:
    """The first step of T5-small's decoder."""
    return t5_decoder(small, past=False)


@network("t5_small_decoder_with_past")
def t5_small_decoder_with_past(small: bool) -> Network:
    """A later step of T5-small's decoder."""
    return t5_decoder(small, past=True)
