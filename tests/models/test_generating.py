"""`generate` with caches, beams, samples and padding: the same tokens as by reading everything anew."""

import pytest
import torch
from torch.testing import assert_close
from transformers import DynamicCache, EncoderDecoderCache

from models.small import POSITIONS, SOURCE, START, TARGET, WRITERS, given, ids, model_of, padded
from regard.errors import ArgumentError

NEW = 9
WAYS = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "temperature": 1.3, "top_k": 11},
    "beams": {"num_beams": 3, "num_return_sequences": 2},
    "beams that sample": {"num_beams": 3, "do_sample": True},
    "penalty": {"do_sample": False, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
}


def said(model, seed=0, **how):
    torch.manual_seed(seed)
    return model.generate(max_new_tokens=NEW, **how)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", WRITERS)
def test_a_cache_changes_no_token(kind, way):
    model, read = model_of(kind, tie_word_embeddings=False), given(kind)
    with_cache = said(model, **read, **WAYS[way])
    assert torch.equal(with_cache, said(model, **read, **WAYS[way], use_cache=False))
    assert with_cache.unique().numel() > 4, "a test of nothing: all tokens are alike"


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kind", ["decoder", "text"])
def test_a_cache_changes_no_token_whatever_the_positions(kind, positions):
    model, read = model_of(kind, position_embedding_type=positions, num_key_value_heads=2), given(kind)
    mask = padded((SOURCE, 4, 7), "left")
    for way in ("greedy", "beams"):
        how = read | {"attention_mask": mask} | WAYS[way]
        assert torch.equal(said(model, **how), said(model, **how, use_cache=False))


@pytest.mark.parametrize("score", ["additive", "dot", "general", "concat", None])
@pytest.mark.parametrize("order, cell", [("bahdanau", "lstm"), ("luong", "gru"), ("luong", "lstm")])
def test_a_state_changes_no_token(score, order, cell):
    model = model_of("recurrent", score=score, order=order, cell=cell, bidirectional=score != "dot")
    how = {"input_ids": ids(SOURCE), "attention_mask": padded((SOURCE, 4, 7), "right")}
    for way in ("greedy", "beams"):
        assert torch.equal(said(model, **how, **WAYS[way]), said(model, **how, **WAYS[way], use_cache=False))


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_padded_prompt_is_gone_on_with_as_alone(positions):
    model, read = model_of("decoder", position_embedding_type=positions), ids(SOURCE)
    lengths = (SOURCE, 4, 7)
    batch = said(model, input_ids=read, attention_mask=padded(lengths, "left"), do_sample=False)[:, SOURCE:]
    for row, length in enumerate(lengths):
        alone = said(model, input_ids=read[row, -length:][None], do_sample=False)[0, length:]
        assert batch[row, : len(alone)].tolist() == alone.tolist()


@pytest.mark.parametrize("kind, side", [("text", "left"), ("text", "right"), ("recurrent", "right")])
def test_a_padded_source_is_answered_as_alone(kind, side):
    model, read = model_of(kind), ids(SOURCE)
    mask = padded((SOURCE, 4, 7), side)
    batch = said(model, input_ids=read, attention_mask=mask, do_sample=False)
    for row in range(3):
        alone = said(model, input_ids=read[row, mask[row].bool()][None], do_sample=False)[0]
        assert batch[row, : len(alone)].tolist() == alone.tolist()


@pytest.mark.parametrize("kind", ["text", "image", "recurrent"])
def test_a_prompt_of_the_decoder(kind):
    model, read = model_of(kind), given(kind)
    start = torch.cat((torch.full((3, 1), START), ids(4)), 1)
    got = said(model, **read, decoder_input_ids=start, do_sample=False)
    assert torch.equal(got[:, :5], start)
    assert torch.equal(got, said(model, **read, decoder_input_ids=start, do_sample=False, use_cache=False))


@pytest.mark.parametrize("kind", WRITERS)
def test_greedy_tokens_are_the_largest_logits(kind):
    model, read = model_of(kind), given(kind)
    got = said(model, **read, do_sample=False, min_new_tokens=NEW)
    inputs = {"input_ids": got} if kind == "decoder" else read | {"decoder_input_ids": got}
    logits = model(**inputs).logits[:, -NEW - 1 : -1]
    logits[..., 2] = -torch.inf  # the end, which min_new_tokens forbids
    assert torch.equal(logits.argmax(-1), got[:, -NEW:])


def test_guesses_ahead_change_no_token():
    model, read = model_of("decoder"), ids(SOURCE, 1)
    how = {"input_ids": read, "do_sample": False}
    assert torch.equal(said(model, **how), said(model, **how, prompt_lookup_num_tokens=3))
    assistant = model_of("decoder", num_hidden_layers=1)
    assert torch.equal(said(model, **how), said(model, **how, assistant_model=assistant))


def test_a_prompt_in_pieces_changes_no_token():
    model, read = model_of("decoder"), ids(SOURCE)
    how = {"input_ids": read, "do_sample": False}
    assert torch.equal(said(model, **how), said(model, **how, prefill_chunk_size=4))


def test_a_conversation_goes_on_with_its_cache():
    model, read = model_of("decoder", position_embedding_type="rotary"), ids(SOURCE)
    first = said(model, input_ids=read, do_sample=False, return_dict_in_generate=True)
    more = torch.cat((first.sequences, ids(4)), 1)
    cache = first.past_key_values
    assert cache.get_seq_length() == first.sequences.shape[1] - 1
    assert torch.equal(
        said(model, input_ids=more, do_sample=False, past_key_values=cache),
        said(model, input_ids=more, do_sample=False),
    )


@pytest.mark.parametrize("kind", ["decoder", "text"])
def test_pieces_with_a_cache_are_the_whole(kind):
    model, target = model_of(kind).double(), ids(TARGET)
    read = {} if kind == "decoder" else {"input_ids": ids(SOURCE)}
    name = "input_ids" if kind == "decoder" else "decoder_input_ids"
    past, logits = None, []
    for piece in target.split((3, 1, 3), 1):
        out = model(**read, **{name: piece}, past_key_values=past, use_cache=True)
        past = out.past_key_values
        logits.append(out.logits)
    assert past.get_seq_length() == TARGET
    assert_close(torch.cat(logits, 1), model(**read, **{name: target}).logits)


def test_a_source_is_projected_once():
    model = model_of("text")
    out = model(source := ids(SOURCE), decoder_input_ids=ids(2), use_cache=True)
    kept = out.past_key_values.cross_attention_cache.layers[1].keys.clone()
    encoded = (torch.randn_like(out.encoder_last_hidden_state),)
    again = model(encoder_outputs=encoded, decoder_input_ids=ids(1), past_key_values=out.past_key_values)
    assert torch.equal(again.past_key_values.cross_attention_cache.layers[1].keys, kept)
    assert source.shape[1] == kept.shape[2]


def test_the_last_logits_alone():
    model, read = model_of("decoder"), ids(SOURCE)
    whole = model(read).logits
    assert_close(model(read, logits_to_keep=1).logits, whole[:, -1:])
    assert model(read, logits_to_keep=1, labels=read).logits.shape == whole.shape


def test_gradients_flow_through_a_cache():
    model, read = model_of("decoder").double(), ids(SOURCE)
    past = DynamicCache()
    model(read[:, :6], past_key_values=past)
    model(read[:, 6:], past_key_values=past).logits.sum().backward()
    got = model.decoder.embedding.positions.weight.grad.clone()
    model.zero_grad()
    model(read).logits[:, 6:].sum().backward()
    assert_close(got, model.decoder.embedding.positions.weight.grad)


@pytest.mark.parametrize(
    "kind, past, message",
    [
        ("text", DynamicCache, "past_key_values must be an EncoderDecoderCache, got DynamicCache"),
        (
            "decoder",
            lambda: EncoderDecoderCache(DynamicCache(), DynamicCache()),
            "must be a DynamicCache, got Enc",
        ),
    ],
)
def test_another_cache_is_refused(kind, past, message):
    name = "input_ids" if kind == "decoder" else "decoder_input_ids"
    read = {} if kind == "decoder" else {"input_ids": ids(SOURCE)}
    with pytest.raises(ArgumentError, match=message):
        model_of(kind)(**read, **{name: ids(3)}, past_key_values=past())


def test_a_static_cache_is_refused():
    with pytest.raises(ArgumentError, match='leave cache_implementation="static" out'):
        said(model_of("decoder"), input_ids=ids(SOURCE), cache_implementation="static")


def test_a_mask_is_as_long_as_the_cache():
    model = model_of("decoder")
    past = model(ids(5), use_cache=True).past_key_values
    with pytest.raises(ValueError, match=r"attention_mask must be \(batch, tokens\) = \(3, 7\)"):
        model(ids(2), attention_mask=torch.ones(3, 2), past_key_values=past)


def test_states_cannot_be_guessed_ahead():
    with pytest.raises(ValueError, match="not supported with stateful models"):
        said(model_of("recurrent"), input_ids=ids(SOURCE, 1), prompt_lookup_num_tokens=3)
