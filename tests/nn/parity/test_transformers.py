"""Regard's stacks with the weights of small Hugging Face models: the same hidden states."""

import pytest
import torch
from torch import Tensor

import regard as rg
from regard.nn import PUBLISHED, Relative, Rotary, parameters_of

transformers = pytest.importorskip("transformers")

WIDTH, HEADS, KV_HEADS, HIDDEN, DEPTH, TOKENS = 24, 4, 2, 37, 2, 29
IDS = torch.arange(2 * TOKENS).view(2, TOKENS) % 31


def close(got: Tensor, want: Tensor) -> None:
    """Norms and angles are computed in float32 on their side, whatever the type."""
    torch.testing.assert_close(got, want, rtol=1e-4, atol=2e-5)


def shaken(model):
    for parameter in model.double().eval().parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def load(stack, state):
    stack.double().load_state_dict(state)
    return stack


def stacked(theirs, *names):
    """Weights of several projections under each other."""
    return torch.cat([theirs[name] for name in names])


def test_bert():
    config = transformers.BertConfig(
        vocab_size=31,
        hidden_size=WIDTH,
        num_hidden_layers=DEPTH,
        num_attention_heads=HEADS,
        intermediate_size=HIDDEN,
    )
    model = shaken(transformers.BertModel(config))
    state = {}
    for i, layer in enumerate(model.encoder.layer):
        theirs, ours = layer.state_dict(), f"layers.{i}."
        for kind in ("weight", "bias"):
            names = [f"attention.self.{name}.{kind}" for name in ("query", "key", "value")]
            state |= {
                f"{ours}attention.qkv.{kind}": stacked(theirs, *names),
                f"{ours}attention.output.{kind}": theirs[f"attention.output.dense.{kind}"],
                f"{ours}attention_norm.{kind}": theirs[f"attention.output.LayerNorm.{kind}"],
                f"{ours}feedforward.inner.{kind}": theirs[f"intermediate.dense.{kind}"],
                f"{ours}feedforward.outer.{kind}": theirs[f"output.dense.{kind}"],
                f"{ours}feedforward_norm.{kind}": theirs[f"output.LayerNorm.{kind}"],
            }
    ours = load(rg.nn.Encoder(DEPTH, WIDTH, HEADS, HIDDEN, norm_first=False, layer_norm_eps=1e-12), state)
    x, lengths = model.embeddings(IDS), torch.tensor([TOKENS, 17])
    real = torch.arange(TOKENS) < lengths[:, None]
    want = model(IDS, attention_mask=real.long()).last_hidden_state
    close(ours(x, mask=rg.padding(lengths))[real], want[real])


def test_gpt2():
    config = transformers.GPT2Config(
        vocab_size=31, n_positions=41, n_embd=WIDTH, n_layer=DEPTH, n_head=HEADS, n_inner=HIDDEN
    )
    model = shaken(transformers.GPT2Model(config))
    pairs = {
        "attn.c_attn": "attention.qkv",
        "attn.c_proj": "attention.output",
        "ln_1": "attention_norm",
        "mlp.c_fc": "feedforward.inner",
        "mlp.c_proj": "feedforward.outer",
        "ln_2": "feedforward_norm",
    }
    state = {"norm.weight": model.ln_f.weight, "norm.bias": model.ln_f.bias}
    for i, layer in enumerate(model.h):
        for theirs, ours in pairs.items():
            part = layer.get_submodule(theirs)
            state[f"layers.{i}.{ours}.weight"] = part.weight if "ln" in theirs else part.weight.T
            state[f"layers.{i}.{ours}.bias"] = part.bias
    options = {"activation": "gelu_tanh", "cross_attention": False}
    ours = load(rg.nn.Decoder(DEPTH, WIDTH, HEADS, HIDDEN, **options), state)
    table = rg.nn.Learned(41, WIDTH).double()
    table.load_state_dict({"weight": model.wpe.weight})
    want = model(IDS, use_cache=False).last_hidden_state
    close(ours(table(model.wte(IDS))), want)
    with torch.no_grad():
        cache = rg.nn.Cache(ours)
        pieces = [ours(table(model.wte(part), len(cache)), cache=cache) for part in IDS.split((19, 1, 9), 1)]
    close(torch.cat(pieces, 1), want)


def llama_state(model, *, head_norm):
    """The weights of Llama and of those built like it."""
    state = {"norm.weight": model.norm.weight}
    for i, layer in enumerate(model.layers):
        theirs, ours = layer.state_dict(), f"layers.{i}."
        projections = [f"self_attn.{name}_proj.weight" for name in "qkv"]
        state |= {
            f"{ours}attention.qkv.weight": stacked(theirs, *projections),
            f"{ours}attention.output.weight": theirs["self_attn.o_proj.weight"],
            f"{ours}attention_norm.weight": theirs["input_layernorm.weight"],
            f"{ours}feedforward.inner.weight": stacked(theirs, "mlp.gate_proj.weight", "mlp.up_proj.weight"),
            f"{ours}feedforward.outer.weight": theirs["mlp.down_proj.weight"],
            f"{ours}feedforward_norm.weight": theirs["post_attention_layernorm.weight"],
        }
        if head_norm:
            for name, short in (("query", "q"), ("key", "k")):
                state[f"{ours}attention.{name}_norm.weight"] = theirs[f"self_attn.{short}_norm.weight"]
    return state


@pytest.mark.parametrize("name", ["Llama", "Qwen3", "Mistral"])
def test_llama_and_those_built_like_it(name):
    dim = 10 if name == "Qwen3" else WIDTH // HEADS
    config = getattr(transformers, f"{name}Config")(
        vocab_size=31,
        hidden_size=WIDTH,
        num_hidden_layers=DEPTH,
        num_attention_heads=HEADS,
        head_dim=dim,
        num_key_value_heads=KV_HEADS,
        intermediate_size=HIDDEN,
        rms_norm_eps=1e-6,
        pad_token_id=0,
        **({"sliding_window": 5} if name == "Mistral" else {}),
    )
    config._attn_implementation = "eager"
    model = shaken(getattr(transformers, f"{name}Model")(config))
    attention = {
        "num_kv_heads": KV_HEADS,
        "head_dim": dim,
        "positions": Rotary(dim),
        "qk_norm": "rms" if name == "Qwen3" else None,
        "mask": rg.near(4) if name == "Mistral" else None,
    }
    options = {
        "norm_type": "rms",
        "activation": "swiglu",
        "bias": False,
        "layer_norm_eps": 1e-6,
        "cross_attention": False,
    }
    ours = rg.nn.Decoder(DEPTH, WIDTH, HEADS, HIDDEN, attention=attention, **options)
    load(ours, llama_state(model, head_norm=name == "Qwen3"))
    close(ours(model.embed_tokens(IDS)), model(IDS, use_cache=False).last_hidden_state)


@pytest.mark.parametrize("decodes", [False, True])
def test_t5(decodes):
    config = transformers.T5Config(
        vocab_size=31,
        d_model=WIDTH,
        d_kv=5,
        d_ff=HIDDEN,
        num_layers=DEPTH,
        num_heads=HEADS,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        dropout_rate=0.0,
    )
    model = shaken(transformers.T5Model(config))
    theirs = model.decoder if decodes else model.encoder
    relative = Relative(HEADS, 20, num_buckets=8, bidirectional=not decodes)
    attention = {"head_dim": 5, "scale": 1.0, "positions": relative}
    options = {
        "norm_type": "rms",
        "activation": "relu",
        "bias": False,
        "layer_norm_eps": 1e-6,
        "attention": attention,
    }
    stack = rg.nn.Decoder if decodes else rg.nn.Encoder
    ours = stack(DEPTH, WIDTH, HEADS, HIDDEN, **options)
    state = {"norm.weight": theirs.final_layer_norm.weight}
    bias = theirs.block[0].layer[0].SelfAttention.relative_attention_bias.weight.T
    for i, block in enumerate(theirs.block):
        blocks = {"attention": block.layer[0].SelfAttention}
        norms = {"attention": block.layer[0].layer_norm, "feedforward": block.layer[-1].layer_norm}
        if decodes:
            blocks["crossing"], norms["crossing"] = block.layer[1].EncDecAttention, block.layer[1].layer_norm
        for name, part in blocks.items():
            state[f"layers.{i}.{name}.qkv.weight"] = torch.cat((part.q.weight, part.k.weight, part.v.weight))
            state[f"layers.{i}.{name}.output.weight"] = part.o.weight
        for name, norm in norms.items():
            state[f"layers.{i}.{name}_norm.weight"] = norm.weight
        state[f"layers.{i}.attention.positions.weight"] = bias
        state[f"layers.{i}.feedforward.inner.weight"] = block.layer[-1].DenseReluDense.wi.weight
        state[f"layers.{i}.feedforward.outer.weight"] = block.layer[-1].DenseReluDense.wo.weight
    load(ours, state)
    x = model.shared(IDS)
    if decodes:
        source = torch.randn(2, 7, WIDTH, dtype=torch.float64)
        want = theirs(IDS, encoder_hidden_states=source, use_cache=False).last_hidden_state
        close(ours(x, source), want)
    else:
        close(ours(x), theirs(IDS).last_hidden_state)


@pytest.mark.parametrize("heads", [1, 3, 8, 12, 16])
def test_alibi_slopes_of_bloom(heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = bloom.build_alibi_tensor(torch.ones(1, 5), heads, torch.float64)[:, 0]
    slopes = rg.nn.Alibi(heads).slopes.double()
    torch.testing.assert_close(theirs, slopes[:, None] * torch.arange(5), rtol=1e-6, atol=0)


@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize("buckets, reach", [(32, 128), (8, 20), (64, 1000)])
def test_buckets_of_t5(buckets, reach, one_sided):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    difference = torch.arange(-reach, reach + 1)
    theirs = t5.T5Attention._relative_position_bucket(difference, not one_sided, buckets, reach)
    assert torch.equal(Relative(1, reach, num_buckets=buckets, bidirectional=not one_sided).index, theirs)


def test_interleaved_rotary_positions_of_gptj():
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    tokens = torch.randn(1, 7, 3, 8, dtype=torch.float64)
    sin, cos = gptj.create_sinusoidal_positions(7, 8).double()[None].chunk(2, -1)
    want = gptj.apply_rotary_pos_emb(tokens, sin, cos).transpose(1, 2)
    for got in Rotary(8, interleaved=True).rotate(tokens.transpose(1, 2), tokens.transpose(1, 2)):
        close(got, want)


@pytest.mark.parametrize(
    "name, make",
    [
        ("BERT-base", lambda: transformers.BertModel(transformers.BertConfig())),
        (
            "BERT-large",
            lambda: transformers.BertModel(
                transformers.BertConfig(
                    hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
                )
            ),
        ),
        ("GPT-2 small", lambda: transformers.GPT2Model(transformers.GPT2Config())),
    ],
)
def test_parameter_counts(name, make):
    with torch.device("meta"):
        assert parameters_of(PUBLISHED[name]) == sum(p.numel() for p in make().parameters())
