"""Tiny models of libraries other than transformers, as subjects of the sweep.

Each library is a function that yields names, and one that builds the subject of a name.
"""

from __future__ import annotations

import copy
import importlib
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from breadth.diffusion import DIFFUSERS
from breadth.images import BLOCKED, TIMM, VIT
from breadth.modes import Subject, tensors

ALREADY_AWAKE = {"torchao", "transformer_lens"}  # whose weights are made into others when they are built

Made = tuple[nn.Module, dict[str, Any], list[Tensor]]


def _awake(model: nn.Module, strength: float = 1.0) -> nn.Module:
    """Larger weights than at the start of training: attention that says something."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and parameter.ndim > 0:
                scale = strength * min(0.15, 0.9 / max(1, parameter.shape[-1]) ** 0.5)
                parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)
    return model.eval()


LARGE = 1e6  # an output beyond which float32 rounds scores by more than attention tells apart


def _moderate(result: Any) -> bool:
    """Whether every number of a result is finite and of a size at which float32 still tells scores apart."""
    return all(bool((part.abs() < LARGE).all()) for part in tensors(result) if part.is_floating_point())


def _calibrated(model: nn.Module, run: Callable[[nn.Module], Any]) -> nn.Module:
    """The model with the statistics of its own data in its batch norms, as training leaves them."""
    norms = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    norms = [part for part in norms if part.track_running_stats]
    if not norms:
        return model
    usual = [part.momentum for part in norms]
    for part in norms:
        part.reset_running_stats()
        part.momentum = None
    with torch.no_grad():
        run(model.train())
    for part, momentum in zip(norms, usual, strict=True):
        part.momentum = momentum
    return model.eval()


def subject(library: str, name: str) -> Subject:
    """The subject of a name in a library."""
    model, given, args, padding = _sound(library, name)
    # Masks that the caller gives, True or 1 where a token is real.
    masks = [
        value.bool()
        for key, value in given.items()
        if "mask" in key and isinstance(value, Tensor) and value.ndim == 2
    ]
    padding = [*padding, *masks]

    def build(_implementation: str | None) -> nn.Module:
        return copy.deepcopy(model)

    def run(own: nn.Module) -> Any:
        return own(*copy.deepcopy(args), **copy.deepcopy(given))

    return Subject(f"{library}/{name}", build, run, padding, None, False, type(model).__name__)


def _sound(library: str, name: str) -> tuple[nn.Module, dict[str, Any], tuple[Any, ...], list[Tensor]]:
    """A model with the largest weights with which its output is of moderate size."""
    for strength in (1.0, 0.2, 0.0):
        torch.manual_seed(7)
        model, given, padding = LIBRARIES[library][1](name)
        given = dict(given)
        args = given.pop("args", ())
        model = model.eval() if library in ALREADY_AWAKE else _awake(model, strength)

        def run(own: nn.Module, args: Any = args, given: Any = given) -> Any:
            return own(*copy.deepcopy(args), **copy.deepcopy(given))

        model = _calibrated(model, run)
        with torch.no_grad():
            if _moderate(run(copy.deepcopy(model))):
                break
    return model, given, args, padding


def _image(size: int, batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, size, size)


# --- timm --------------------------------------------------------------------------------------------------


def timm_names() -> list[str]:
    import timm

    return [name for name in TIMM if timm.is_model(name)]


def timm_model(name: str) -> Made:
    import timm

    words = dict(TIMM[name])
    size = words.get("img_size", 64)
    model = timm.create_model(name, pretrained=False, num_classes=5, **words)
    if "img_size" not in words:
        size = max(
            64,
            (model.default_cfg.get("fixed_input_size", False) and model.default_cfg["input_size"][-1]) or 64,
        )
    return model, {"args": (_image(BLOCKED.get(name, size)),)}, []


# --- diffusers ---------------------------------------------------------------------------------------------


def diffusers_model(name: str) -> Made:
    kind = getattr(importlib.import_module("diffusers"), name)
    words, inputs = DIFFUSERS[name]
    return kind(**words), inputs(), []


# --- vit-pytorch -------------------------------------------------------------------------------------------


def vit_pytorch_model(name: str) -> Made:
    kind, words, shape = VIT[name]
    import vit_pytorch

    module = importlib.import_module(f"{vit_pytorch.__name__}.{name}")
    model = getattr(module, kind)(**words)
    if shape[0] == -1:
        return model, {"args": ([torch.randn(3, 32, 32), torch.randn(3, 16, 32)],)}, []
    return model, {"args": (torch.randn(2, *shape),)}, []


# --- x-transformers ----------------------------------------------------------------------------------------

_LAYERS = dict(dim=32, depth=2, heads=4, attn_dim_head=8)
X: dict[str, dict[str, Any]] = {
    "decoder": {}, "flash": dict(attn_flash=True), "rotary": dict(rotary_pos_emb=True), "alibi": dict(alibi_pos_bias=True, alibi_num_heads=4),
    "t5_bias": dict(rel_pos_bias=True), "dynamic_bias": dict(dynamic_pos_bias=True), "one_kv_head": dict(attn_one_kv_head=True),
    "grouped": dict(attn_kv_heads=2), "talking_heads": dict(attn_pre_talking_heads=True, attn_post_talking_heads=True),
    "qk_norm": dict(attn_qk_norm=True), "sparse_topk": dict(attn_sparse_topk=4), "gate_values": dict(attn_gate_values=True),
    "memory_keys": dict(attn_num_mem_kv=3), "sigmoid": dict(attn_sigmoid=True), "softclamp": dict(attn_softclamp_logits=True),
    "value_residual": dict(add_value_residual=True), "head_scale": dict(attn_head_scale=True), "hard": dict(attn_hard=True),
    "zero_kv": dict(attn_add_zero_kv=True), "selective": dict(attn_selective=True), "cog_signed": dict(attn_cog_signed=True),
    "l2_distance": dict(attn_l2_distance=True), "forgetting": dict(attn_data_dependent_alibi=True), "macaron": dict(macaron=True),
    "laser": dict(attn_laser=True), "learned_sinks": dict(attn_head_learned_sink=True), "orthogonal": dict(attn_orthog_projected_values=True),
}  # fmt: skip


def x_names() -> list[str]:
    return [*X, "encoder", "cross", "vit"]


def x_model(name: str) -> Made:
    from x_transformers import Decoder, Encoder, TransformerWrapper, ViTransformerWrapper, XTransformer

    torch.manual_seed(7)
    ids = torch.randint(3, 60, (2, 13))
    real = torch.arange(13) < torch.tensor([13, 9])[:, None]
    if name == "vit":
        layers = Encoder(**_LAYERS)
        return (
            _awake(ViTransformerWrapper(image_size=32, patch_size=8, num_classes=5, attn_layers=layers)),
            {"args": (_image(32),)},
            [],
        )
    if name == "cross":
        model = XTransformer(
            dim=32,
            enc_num_tokens=64,
            enc_depth=2,
            enc_heads=4,
            enc_max_seq_len=32,
            dec_num_tokens=64,
            dec_depth=2,
            dec_heads=4,
            dec_max_seq_len=32,
        )
        return model, {"args": (ids, ids[:, :7]), "mask": real}, [real]
    kind = Encoder if name == "encoder" else Decoder
    model = TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=kind(**_LAYERS, **X.get(name, {})))
    return model, {"args": (ids,), "mask": real}, [real]


# --- open_clip, PEFT, torchao, TransformerLens -------------------------------------------------------------


def open_clip_model(name: str) -> Made:
    from open_clip.coca_model import CoCa
    from open_clip.model import CLIP, CustomTextCLIP

    vision: dict[str, Any] = dict(layers=2, width=32, head_width=8, patch_size=8, image_size=32)
    text: dict[str, Any] = dict(context_length=13, vocab_size=64, width=32, heads=4, layers=2)
    words = torch.randint(1, 60, (2, 13))
    words[:, -1] = 63
    given: dict[str, Any] = {"image": _image(32), "text": words}
    if name == "coca":
        text |= dict(embed_cls=True, output_tokens=True, context_length=12)
        model = CoCa(
            embed_dim=32,
            multimodal_cfg=dict(context_length=12, width=32, heads=4, layers=2),
            text_cfg=text,
            vision_cfg=dict(vision, attentional_pool=True, attn_pooler_heads=4, output_tokens=True),
        )
        return model, given | {"text": words[:, :12]}, []
    if name == "resnet":
        return (
            _awake(
                CLIP(
                    embed_dim=32,
                    vision_cfg=dict(layers=(1, 1, 1, 1), width=8, head_width=8, image_size=64),
                    text_cfg=text,
                )
            ),
            given | {"image": _image(64)},
            [],
        )
    if name == "custom_text":
        return (
            _awake(
                CustomTextCLIP(
                    embed_dim=32,
                    vision_cfg=dict(vision, attentional_pool=True, attn_pooler_heads=4),
                    text_cfg=dict(text, embed_cls=True),
                )
            ),
            given | {"text": words[:, :12]},
            [],
        )
    return CLIP(embed_dim=32, vision_cfg=vision, text_cfg=text), given, []


def _llama(**more: Any) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        **more,
    )
    return _awake(LlamaForCausalLM(config))


def _words() -> tuple[dict[str, Any], list[Tensor]]:
    torch.manual_seed(11)
    real = torch.arange(13) < torch.tensor([13, 9])[:, None]
    return {"input_ids": torch.randint(3, 90, (2, 13)), "attention_mask": real.long()}, [real]


def peft_model(name: str) -> Made:
    import peft

    given, padding = _words()
    if name.startswith("seq2seq"):
        from transformers import T5Config, T5ForConditionalGeneration

        base: nn.Module = _awake(
            T5ForConditionalGeneration(
                T5Config(
                    vocab_size=128,
                    d_model=32,
                    d_kv=8,
                    d_ff=48,
                    num_layers=2,
                    num_heads=4,
                    decoder_start_token_id=0,
                )
            )
        )
        given["decoder_input_ids"] = given["input_ids"][:, :7]
        kind = "SEQ_2_SEQ_LM"
        name = name.removeprefix("seq2seq_")
    else:
        base, kind = _llama(), "CAUSAL_LM"
    config = {
        "lora": lambda: peft.LoraConfig(r=4, task_type=kind),
        "dora": lambda: peft.LoraConfig(r=4, task_type=kind, use_dora=True),
        "ia3": lambda: peft.IA3Config(task_type=kind),
        "oft": lambda: peft.OFTConfig(task_type=kind, oft_block_size=8, r=0),
        "adalora": lambda: peft.AdaLoraConfig(task_type=kind, total_step=10),
        "prefix": lambda: peft.PrefixTuningConfig(task_type=kind, num_virtual_tokens=3),
        "prompt": lambda: peft.PromptTuningConfig(task_type=kind, num_virtual_tokens=3),
        "p_tuning": lambda: peft.PromptEncoderConfig(
            task_type=kind, num_virtual_tokens=3, encoder_hidden_size=16
        ),
        "adaption_prompt": lambda: peft.AdaptionPromptConfig(task_type=kind, adapter_len=3, adapter_layers=1),
    }[name]()
    return peft.get_peft_model(base, config), given, padding


def torchao_model(name: str) -> Made:
    from torchao import quantization as ao

    given, padding = _words()
    model = _llama()
    config = {
        "int8_weight_only": lambda: ao.Int8WeightOnlyConfig(),
        "int8_dynamic": lambda: ao.Int8DynamicActivationInt8WeightConfig(),
    }[name]()
    ao.quantize_(model, config)
    return model, given, padding


def lens_model(name: str) -> Made:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    torch.manual_seed(7)
    if name.startswith("gpt2"):
        own: nn.Module = _awake(
            GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4))
        )
    else:
        own = _llama()
    with tempfile.TemporaryDirectory() as folder:
        own.config.save_pretrained(folder)
        words = {f"w{place}": place for place in range(64)}
        PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="w0"))).save_pretrained(
            folder
        )
        bridge = TransformerBridge.boot_transformers(folder, hf_model=own, tokenizer=None, device="cpu")
    if name.endswith("compatible"):
        bridge.enable_compatibility_mode(disable_warnings=True)
    return bridge.eval(), {"args": (torch.randint(3, 60, (2, 13)),)}, []


Names = Callable[[], list[str]]
LIBRARIES: dict[str, tuple[Names, Callable[[str], Made]]] = {
    "timm": (timm_names, timm_model),
    "diffusers": (lambda: list(DIFFUSERS), diffusers_model),
    "vit-pytorch": (lambda: list(VIT), vit_pytorch_model),
    "x-transformers": (x_names, x_model),
    "open_clip": (lambda: ["clip", "coca", "resnet", "custom_text"], open_clip_model),
    "peft": (
        lambda: [
            "lora",
            "dora",
            "ia3",
            "oft",
            "adalora",
            "prefix",
            "prompt",
            "p_tuning",
            "adaption_prompt",
            "seq2seq_lora",
            "seq2seq_prefix",
            "seq2seq_prompt",
        ],
        peft_model,
    ),
    "torchao": (lambda: ["int8_weight_only", "int8_dynamic"], torchao_model),
    "transformer_lens": (lambda: ["gpt2", "gpt2_compatible", "llama"], lens_model),
}
