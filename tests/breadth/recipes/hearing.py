"""Recipes of models that hear or speak, and of parts of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from breadth.recipes.common import WAY, ids, mask, text, with_images

OMNI = "transformers.models.qwen2_5_omni.modeling_qwen2_5_omni"
CLASSES: dict[str, list[str]] = {
    "speech-encoder-decoder": ["SpeechEncoderDecoderModel"],
}

VIBE = dict(num_filters=4, depths=[1, 1, 1], downsampling_ratios=[2, 4], hidden_size=16, ffn_expansion=2)
DIT = dict(
    hidden_size=32, num_hidden_layers=3, num_attention_heads=4, head_dim=8, emb_dim=16, num_embeds=60, mel_dim=8,
    look_ahead_layers=[1], look_backward_layers=[0, 2], block_size=4, enc_emb_dim=8, enc_dim=8,
    enc_channels=[16, 16, 16, 16, 48], enc_attention_channels=8, enc_se_channels=8,
)  # fmt: skip
BIGVGAN = dict(
    mel_dim=8, upsample_initial_channel=32, resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3, 5]],
    upsample_rates=[2, 2], upsample_kernel_sizes=[4, 4],
)  # fmt: skip
MUSE = dict(num_hidden_layers=4, patch_sizes=[4, 2, 2, 2], hidden_sizes=[8, 16, 32, 32], depths=[1, 1, 1, 1])
CONFIGS: dict[str, dict[str, Any]] = {
    "dots3_note_audio_encoder": dict(
        feature_size=16, hidden_size=32, adapter_input_size=32, adapter_out_dim=32, head_dim=8, num_attention_heads=4,
        num_key_value_heads=4, downsample_hidden_size=8, conv_output_size=16,
    ),
    "fun_asr_nano_encoder": dict(num_hidden_layers=4, num_timestamp_prediction_layers=2),
    "qwen2_5_omni_dit": DIT,
    "qwen2_5_omni_bigvgan": BIGVGAN,
    "qwen2_5_omni_token2wav": dict(dit_config=DIT, bigvgan_config=BIGVGAN),
    "vibevoice_acoustic_tokenizer": VIBE,
    "vibevoice_acoustic_tokenizer_encoder": VIBE,
    "vibevoice_acoustic_tokenizer_decoder": VIBE,
    "vibevoice": dict(
        audio_config=VIBE, semantic_model_config=VIBE, diffusion_head_config=dict(hidden_size=32, latent_size=16),
    ),
    "vibevoice_asr": dict(acoustic_tokenizer_encoder_config=VIBE, semantic_tokenizer_encoder_config=VIBE, acoustic_tokenizer_chunk_size=320),
    "musicgen": dict(decoder=dict(num_codebooks=4)),
    "neucodec": dict(quantization_dim=64),
    "xcodec2": dict(quantization_dim=64),
    "clvp": dict(
        text_config=dict(hidden_size=128, projection_dim=128), speech_config=dict(hidden_size=128, projection_dim=128), projection_dim=32,
    ),
    "muse_spark_audio": MUSE,
    "muse_spark": dict(audio_config=MUSE, out_hidden_size=128),
    "qwen2_5_omni": dict(thinker_config=dict(vision_start_token_id=102), token2wav_config=dict(dit_config=DIT, bigvgan_config=BIGVGAN)),
    "qwen3_omni_moe": dict(thinker_config=dict(vision_start_token_id=102), talker_config=dict(spatial_merge_size=2, text_config=dict(shared_expert_intermediate_size=16))),
}  # fmt: skip


def _packed(feed: Any) -> dict[str, Any]:
    """Two sounds one after the other, and how long each is."""
    mels = feed.config.num_mel_bins
    return {"input_features": torch.randn(mels, 100), "feature_lens": torch.tensor([60, 40])}


def wave(length: int = 6400) -> Tensor:
    """Two sounds of one channel."""
    return torch.randn(2, 1, length)


def _codec(feed: Any) -> dict[str, Any]:
    mels = feed.config.semantic_model_config.feature_projection_input_dim
    return {"input_values": wave(6400), "input_features": torch.randn(2, 20, mels)}


def _music(feed: Any) -> dict[str, Any]:
    return text(decoder_input_ids=ids(7).repeat_interleave(feed.config.decoder.num_codebooks, 0))


def _told(feed: Any) -> dict[str, Any]:
    """Two sounds of ten tokens each; where only real samples count, all are."""
    given = with_images(feed, feed.config.audio_token_id, 10, input_values=wave(80))
    if type(feed.model).__name__.startswith("VibeVoiceFor"):
        given["padding_mask"] = torch.ones(2, 80, dtype=torch.bool)
        # With labels the head for sound runs, which makes noise into sound.
        given |= {
            "labels": given["input_ids"],
            "acoustic_loss_mask": given["input_ids"] == feed.config.audio_token_id,
        }
    return {key: value for key, value in given.items() if feed.wants(key) or key == "attention_mask"}


def _speak(
    model: nn.Module, words: Tensor, attention_mask: Tensor, thoughts: Tensor, voice: dict[str, Tensor]
) -> Any:
    """The model that thinks, the one that speaks, and the one that makes sound; the whole has no forward of its own."""
    sound = model.token2wav if hasattr(model, "token2wav") else model.code2wav
    return (
        model.thinker(input_ids=words, attention_mask=attention_mask),
        model.talker.model(inputs_embeds=thoughts),
        sound(**voice),
    )


def _spoken(feed: Any) -> dict[str, Any]:
    config = feed.config
    talker = getattr(config.talker_config, "text_config", config.talker_config)
    if hasattr(config, "token2wav_config"):
        voice = _voiced(config.token2wav_config)
    else:
        voice = {"codes": torch.randint(3, 60, (2, config.code2wav_config.num_quantizers, 9))}
    return {
        WAY: _speak,
        "words": ids(),
        "attention_mask": mask(13, 13, 9),
        "thoughts": torch.randn(2, 9, talker.hidden_size),
        "voice": voice,
    }


def _voiced(config: Any) -> dict[str, Any]:
    return {
        "code": ids(8, 50)[:1], "conditioning": torch.randn(1, config.dit_config.enc_emb_dim),
        "reference_mel": torch.randn(1, 20, config.dit_config.mel_dim), "num_steps": 3,
    }  # fmt: skip


INPUTS: dict[str, Any] = {
    "clvp": lambda feed: text(input_features=torch.randn(2, feed.config.decoder_config.feature_size, 24)),
    "dots3_note_audio_encoder": lambda feed: {
        "input_features": torch.randn(2, feed.config.feature_size, 64), "chunk_sample_lengths": torch.tensor([64 * 160, 40 * 160]),
    },
    "fun_asr_nano_encoder": lambda feed: {
        "input_features": torch.randn(2, 20, feed.config.input_size), "input_features_mask": mask(20, 20, 14),
    },
    "gemma4_audio": lambda feed: {"input_features": torch.randn(2, 64, 8), "attention_mask": mask(64, 64, 44).bool()},
    "granite_speech5_ctc": lambda feed: {
        "input_features": torch.randn(2, 32, 4 * feed.config.encoder_config.num_mel_bins), "attention_mask": mask(32, 32, 20),
    },
    "granite_speech5_encoder": lambda feed: {
        "input_features": torch.randn(2, 32, 4 * feed.config.num_mel_bins), "attention_mask": mask(32, 32, 20),
    },
    "moss_transcribe_diarize_audio": lambda feed: {
        "input_features": torch.randn(2, feed.config.num_mel_bins, 2 * feed.config.max_source_positions),
    },
    "qwen3_asr_encoder": lambda feed: {
        "input_features": torch.randn(2, feed.config.num_mel_bins, 4 * feed.config.n_window), "input_features_mask": mask(4 * feed.config.n_window, 200, 130),
    },
    "qwen2_5_omni_audio_encoder": _packed,
    "qwen3_omni_moe_audio_encoder": _packed,
    "qwen2_5_omni_bigvgan": lambda feed: {"mel_spectrogram": torch.randn(2, feed.config.mel_dim, 12)},
    "qwen2_5_omni_dit": lambda feed: {
        "hidden_states": torch.randn(2, 16, feed.config.mel_dim), "condition_vector": torch.randn(2, 20, feed.config.mel_dim),
        "speaker_embedding": torch.randn(2, 16, feed.config.enc_emb_dim), "quantized_code": ids(8, 50), "time_step": torch.tensor(0.3),
    },
    "qwen2_5_omni_token2wav": lambda feed: _voiced(feed.config),
    "mimi_encoder": lambda feed: {"input_values": wave()},
    "mimi_decoder": lambda feed: {"latents": torch.randn(2, feed.config.hidden_size, 12)},
    "pocket_tts_audio_tokenizer_encoder": lambda feed: {"input_values": wave()},
    "pocket_tts_audio_tokenizer_decoder": lambda feed: {"latents": torch.randn(2, feed.config.hidden_size, 12)},
    "neucodec": _codec,
    "xcodec2": _codec,
    "speecht5_hifigan": lambda feed: {"spectrogram": torch.randn(2, 12, feed.config.model_in_dim)},
    "fastspeech2_conformer_hifigan": lambda feed: {"spectrogram": torch.randn(2, 12, feed.config.model_in_dim)},
    "musicgen": _music,
    "musicgen_melody": lambda feed: _music(feed) | {"input_features": torch.randn(2, 6, feed.config.num_chroma)},
    "speech-encoder-decoder": lambda feed: {"input_values": torch.randn(2, 6400), "decoder_input_ids": ids(7)},
    "voxtral_realtime": lambda feed: text(input_features=torch.randn(2, feed.config.audio_config.num_mel_bins, 104)),
    "vibevoice": _told,
    "vibevoice_asr": _told,
    "muse_spark_audio": lambda feed: {"input_values": torch.randn(2, 320)},
    "qwen2_5_omni": _spoken,
    "qwen3_omni_moe": _spoken,
    "vibevoice_acoustic_tokenizer": lambda feed: {"input_values": wave(320)},
    "vibevoice_acoustic_tokenizer_encoder": lambda feed: {"hidden_states": wave(320)},
    "vibevoice_acoustic_tokenizer_decoder": lambda feed: {"hidden_states": torch.randn(2, feed.config.hidden_size, 12)},
}  # fmt: skip
