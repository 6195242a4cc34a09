"""Tiny models of many families, built from configurations with random weights: no network, no files."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor, nn

warnings.filterwarnings("ignore", message=".*nested tensors.*")

VOCAB, LENGTH, BATCH = 97, 13, 3
SMALL = dict(
    vocab_size=VOCAB, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, intermediate_size=29
)
GROUPED = dict(SMALL, num_key_value_heads=2, head_dim=4, max_position_embeddings=64)
TOKENS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


@dataclass(frozen=True)
class Family:
    """A family of Hugging Face models.

    Attributes:
        name: of its configuration and model, as `Name` in `NameConfig`.
        head: what follows the name in the model's class.
        config: arguments of the configuration.
        kind: "decoder", "encoder", "encoder-decoder", "image" or "image-text".
        generates: whether `generate` is tried.
    """

    name: str
    head: str
    config: dict[str, Any]
    kind: str = "decoder"
    generates: bool = False

    def build(self, implementation: str | None = None) -> nn.Module:
        """The model in evaluation mode; the same weights every time."""
        import transformers

        config = getattr(transformers, f"{self.name}Config")(
            **self.config, attn_implementation=implementation
        )
        torch.manual_seed(7)
        model = getattr(transformers, f"{self.name}{self.head}")(config).eval()
        with torch.no_grad():
            for (
                parameter
            ) in model.parameters():  # larger than at the start of training: attention that says something
                parameter.add_(torch.randn_like(parameter) * 0.15)
        return model

    def inputs(self, dtype: torch.dtype = torch.float32, padding: str | None = None) -> dict[str, Tensor]:
        """A batch; with `padding` "left" or "right" its rows have 13, 9 and 5 tokens."""
        torch.manual_seed(11)
        ids = torch.randint(3, VOCAB, (BATCH, LENGTH))
        given: dict[str, Tensor] = {}
        if self.kind in ("decoder", "encoder", "encoder-decoder", "image-text"):
            given = {"input_ids": ids, "attention_mask": real(padding).long()}
        if self.kind == "encoder-decoder":
            given["decoder_input_ids"] = torch.randint(3, VOCAB, (BATCH, 7))
        if self.kind in ("image", "image-text"):
            given["pixel_values"] = torch.randn(BATCH, 3, 12, 12).to(dtype)
        if self.kind == "speech":
            given = {"input_features": torch.randn(BATCH, 8, 22).to(dtype), "decoder_input_ids": ids[:, :7]}
        return given


def real(padding: str | None) -> Tensor:
    """Which tokens of the batch are real, `(batch, tokens)`."""
    lengths, token = torch.tensor([13, 9, 5])[:, None], torch.arange(LENGTH)
    if padding is None:
        return torch.ones(BATCH, LENGTH, dtype=torch.bool)
    return token < lengths if padding == "right" else token >= LENGTH - lengths


_BERT = dict(
    SMALL,
    max_position_embeddings=64,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
    pad_token_id=0,
)
_BART = dict(
    vocab_size=VOCAB, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=6,
    decoder_attention_heads=4, encoder_ffn_dim=29, decoder_ffn_dim=29, attention_dropout=0.1,
)  # fmt: skip
_VISION = dict(
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=6,
    intermediate_size=29,
    image_size=12,
    patch_size=4,
)

FAMILIES = {
    family.name: family
    for family in (
        Family("Bert", "Model", _BERT, "encoder"),
        Family("GPT2", "LMHeadModel", dict(vocab_size=VOCAB, n_positions=64, n_embd=24, n_layer=2, n_head=6,
                                           scale_attn_by_inverse_layer_idx=True, **TOKENS), generates=True),
        Family("Llama", "ForCausalLM", dict(GROUPED, **TOKENS), generates=True),
        Family("T5", "ForConditionalGeneration", dict(
            vocab_size=VOCAB, d_model=24, d_kv=5, d_ff=29, num_layers=2, num_heads=6, relative_attention_num_buckets=8,
            relative_attention_max_distance=9, decoder_start_token_id=0), "encoder-decoder", generates=True),
        Family("ViT", "Model", _VISION, "image"),
        Family("Gemma2", "ForCausalLM", dict(
            GROUPED, sliding_window=5, query_pre_attn_scalar=9, attn_logit_softcapping=3.0, **TOKENS), generates=True),
        Family("GptOss", "ForCausalLM", dict(
            GROUPED, sliding_window=5, num_local_experts=3, num_experts_per_tok=2,
            experts_implementation="eager", **TOKENS), generates=True),
        Family("Bloom", "ForCausalLM", dict(vocab_size=VOCAB, hidden_size=24, n_layer=2, n_head=6, **TOKENS),
               generates=True),
        Family("GPTJ", "ForCausalLM", dict(vocab_size=VOCAB, n_positions=64, n_embd=24, n_layer=2, n_head=6,
                                           rotary_dim=2, **TOKENS), generates=True),
        Family("DebertaV2", "Model", dict(
            _BERT, relative_attention=True, position_buckets=4, pos_att_type=["c2p", "p2c"]), "encoder"),
        Family("Mistral", "ForCausalLM", dict(GROUPED, sliding_window=5, **TOKENS), generates=True),
        Family("Qwen3", "ForCausalLM", dict(GROUPED, **TOKENS), generates=True),
        Family("Whisper", "ForConditionalGeneration", dict(
            {**_BART, "num_mel_bins": 8, "max_source_positions": 11, "max_target_positions": 32},
            decoder_start_token_id=1, **TOKENS), "speech"),
        Family("Bart", "ForConditionalGeneration", dict(_BART, max_position_embeddings=64, decoder_start_token_id=2,
               **TOKENS), "encoder-decoder", generates=True),
        Family("CLIP", "Model", dict(
            text_config=dict(SMALL, max_position_embeddings=64, **TOKENS), vision_config=_VISION), "image-text"),
        Family("Falcon", "ForCausalLM", dict(
            vocab_size=VOCAB, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, **TOKENS),
            generates=True),
        Family("Mpt", "ForCausalLM", dict(
            d_model=24, n_heads=6, n_layers=2, max_seq_len=64, vocab_size=VOCAB, **TOKENS)),
        Family("OPT", "ForCausalLM", dict(
            vocab_size=VOCAB, hidden_size=24, num_hidden_layers=2, ffn_dim=29, num_attention_heads=6,
            max_position_embeddings=64, word_embed_proj_dim=24, **TOKENS), generates=True),
        Family("XLNet", "Model", dict(vocab_size=VOCAB, d_model=24, n_layer=2, n_head=6, d_inner=29, dropout=0.0),
               "encoder"),
        Family("Roberta", "Model", dict(_BERT, bos_token_id=1, eos_token_id=2), "encoder"),
    )
}  # fmt: skip
