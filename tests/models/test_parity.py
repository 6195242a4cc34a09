"""Models with the weights of small Hugging Face models: the same logits."""

import pytest
import torch
import transformers
from torch import Tensor
from torch.testing import assert_close

import regard as rg
from models.small import HIDDEN, VOCABULARY, ids, padded
from regard.errors import ArgumentError

WIDTH, HEADS, DEPTH, TOKENS = 24, 4, 2, 11
NUMBERS = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_hidden_layers": DEPTH,
    "intermediate_size": HIDDEN,
    "max_position_embeddings": 41,
}


def shaken(model):
    for parameter in model.eval().parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def close(got: Tensor, want: Tensor) -> None:
    assert_close(got, want, rtol=2e-4, atol=2e-4)


def gpt2():
    """GPT-2, and its weights under our names."""
    theirs = shaken(
        transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=VOCABULARY,
                n_positions=41,
                n_embd=WIDTH,
                n_layer=DEPTH,
                n_head=HEADS,
                n_inner=HIDDEN,
                bos_token_id=1,
                eos_token_id=2,
                pad_token_id=0,
            )
        )
    )
    pairs = {
        "attn.c_attn": "attention.qkv",
        "attn.c_proj": "attention.output",
        "ln_1": "attention_norm",
        "mlp.c_fc": "feedforward.inner",
        "mlp.c_proj": "feedforward.outer",
        "ln_2": "feedforward_norm",
    }
    body = theirs.transformer
    state = {
        "decoder.embedding.tokens.weight": body.wte.weight,
        "decoder.embedding.positions.weight": body.wpe.weight,
        "decoder.stack.norm.weight": body.ln_f.weight,
        "decoder.stack.norm.bias": body.ln_f.bias,
        "lm_head.weight": body.wte.weight,
    }
    for i, layer in enumerate(body.h):
        for name, ours in pairs.items():
            part = layer.get_submodule(name)
            state[f"decoder.stack.layers.{i}.{ours}.weight"] = part.weight if "ln" in name else part.weight.T
            state[f"decoder.stack.layers.{i}.{ours}.bias"] = part.bias
    return theirs, state


def test_gpt2():
    theirs, state = gpt2()
    config = rg.models.DecoderConfig(
        **NUMBERS, hidden_act="gelu_tanh", bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    ours = rg.models.DecoderForCausalLM(config).eval()
    ours.load_state_dict(state)
    assert ours.num_parameters() == theirs.num_parameters()
    read = ids(TOKENS)
    got, want = ours(read, labels=read), theirs(read, labels=read)
    close(got.logits, want.logits)
    close(got.loss, want.loss)
    mask = padded((TOKENS, 4, 7), "left", TOKENS)
    for way in ({"do_sample": False}, {"num_beams": 3}):
        how = {"attention_mask": mask, "max_new_tokens": 9, **way}
        assert torch.equal(ours.generate(read, **how), theirs.generate(read, **how))


@pytest.mark.parametrize("side", ["left", "right"])
def test_bert(side):
    theirs = shaken(
        transformers.BertForMaskedLM(
            transformers.BertConfig(
                vocab_size=VOCABULARY,
                hidden_size=WIDTH,
                num_hidden_layers=DEPTH,
                num_attention_heads=HEADS,
                intermediate_size=HIDDEN,
                max_position_embeddings=41,
            )
        )
    )
    body, head = theirs.bert, theirs.cls.predictions
    pairs = {
        "encoder.embedding.tokens": body.embeddings.word_embeddings,
        "encoder.embedding.segments": body.embeddings.token_type_embeddings,
        "encoder.embedding.norm": body.embeddings.LayerNorm,
        "transform": head.transform.dense,
        "transform_norm": head.transform.LayerNorm,
        "lm_head": head.decoder,
    }
    for i, layer in enumerate(body.encoder.layer):
        pairs |= {
            f"encoder.stack.layers.{i}.attention.output": layer.attention.output.dense,
            f"encoder.stack.layers.{i}.attention_norm": layer.attention.output.LayerNorm,
            f"encoder.stack.layers.{i}.feedforward.inner": layer.intermediate.dense,
            f"encoder.stack.layers.{i}.feedforward.outer": layer.output.dense,
            f"encoder.stack.layers.{i}.feedforward_norm": layer.output.LayerNorm,
        }
    state = {f"{ours}.{leaf}": t for ours, part in pairs.items() for leaf, t in part.state_dict().items()}
    state["encoder.embedding.positions.weight"] = body.embeddings.position_embeddings.weight
    for i, layer in enumerate(body.encoder.layer):
        own = layer.attention.self
        for leaf in ("weight", "bias"):
            parts = [getattr(projection, leaf) for projection in (own.query, own.key, own.value)]
            state[f"encoder.stack.layers.{i}.attention.qkv.{leaf}"] = torch.cat(parts)
    config = rg.models.EncoderConfig(
        **NUMBERS, type_vocab_size=2, norm_first=False, embedding_norm=True, layer_norm_eps=1e-12
    )
    ours = rg.models.EncoderForMaskedLM(config).eval()
    ours.load_state_dict(state)
    assert ours.num_parameters() == theirs.num_parameters()
    read, segments = ids(TOKENS), (torch.arange(TOKENS) > 5).long().expand(3, -1)
    mask = padded((TOKENS, 4, 7), side, TOKENS)
    start = torch.zeros(3, 1, dtype=torch.long) if side == "right" else (mask == 0).sum(1, keepdim=True)
    places = (torch.arange(TOKENS) - start).clamp(min=0)  # BERT counts padding on the left too
    labels = torch.where(mask.bool(), read, -100)
    got = ours(read, mask, segments, labels=labels)
    want = theirs(read, mask, segments, position_ids=places, labels=labels)
    close(got.logits[mask.bool()], want.logits[mask.bool()])
    close(got.loss, want.loss)


def test_patches_of_a_stem_are_in_the_middle_of_what_they_see():
    """A pixel changes the patches within four pixels of it, and no other; torch's own convolutions give the same."""
    config = rg.models.ImageToTextConfig(
        **NUMBERS,
        image_size=(12, 20),
        patch_size=4,
        stem_channels=3,
        num_channels=2,
        position_embedding_type=None,
        dropout=0.0,
    )
    model = rg.models.ImageToTextForConditionalGeneration(config).eval()
    stem = model.encoder.stem
    assert [part.out_channels for part in stem if isinstance(part, torch.nn.Conv2d)] == [3, 6, 12]
    assert rg.models.parameters_of(config) == sum(p.numel() for p in model.parameters())

    image, seen = torch.randn(1, 2, 12, 20, requires_grad=True), []
    model.encoder.patches.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    model.encoder(image)
    row, column = 1, 2
    (gradient,) = torch.autograd.grad(seen[0][0, row * 5 + column].sum(), image)
    rows, columns = gradient.abs().amax((0, 1)).nonzero().T.unbind()
    assert (rows.min(), rows.max()) == (0, 11)
    assert (columns.min(), columns.max()) == (4, 15)

    x = image
    for convolution, norm in zip(stem[::3], stem[1::3], strict=True):
        x = torch.conv2d(x, convolution.weight, stride=convolution.stride, padding=1)
        x = torch.nn.functional.gelu(x / (1 + norm.eps) ** 0.5)  # a new norm has seen mean 0 and variance 1
    want = x.flatten(2).mT @ model.encoder.patches.weight.mT + model.encoder.patches.bias
    torch.testing.assert_close(seen[0], want, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("stem", "patch"), [(-1, 4), (8, 5), (8, 6), (8.0, 4)])
def test_a_stem_needs_patches_that_can_be_halved(stem, patch):
    with pytest.raises(ArgumentError, match=f"a power of two with one, got {stem} and {patch}"):
        rg.models.ImageToTextForConditionalGeneration(
            rg.models.ImageToTextConfig(image_size=(patch, patch), patch_size=patch, stem_channels=stem)
        )


def test_patches_are_those_of_vit():
    """An image's patches, projected, are those of a convolution whose steps are as long as its kernel."""
    config = rg.models.ImageToTextConfig(
        **NUMBERS,
        image_size=(15, 20),
        patch_size=5,
        num_channels=3,
        position_embedding_type=None,
        dropout=0.0,
    )
    encoder = rg.models.ImageToTextForConditionalGeneration(config).encoder.eval()
    image, seen = torch.randn(2, 3, 15, 20), []
    encoder.stack.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    encoder(image)
    kernel = encoder.patches.weight.unflatten(1, (3, 5, 5))
    want = torch.conv2d(image, kernel, encoder.patches.bias, stride=5).flatten(2).mT
    assert_close(seen[0], want, rtol=1e-5, atol=1e-5)
