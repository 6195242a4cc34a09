"""Shapes, padding, losses and errors of the models."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import regard as rg
from models.small import (
    BATCH,
    END,
    HEADS,
    IGNORED,
    KINDS,
    PAD,
    POSITIONS,
    SOURCE,
    START,
    TARGET,
    VOCABULARY,
    WIDTH,
    ids,
    labeled,
    model_of,
    padded,
)
from regard.errors import ArgumentError, MaskError, ShapeError

LENGTHS = (SOURCE, 4, 7)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_loss(kind):
    model, inputs = model_of(kind), labeled(kind)
    out = model(**inputs)
    if kind == "span":
        assert out.start_logits.shape == out.end_logits.shape == (BATCH, SOURCE)
    elif kind == "point":
        assert out.gained.shape == (BATCH,)
    else:
        tokens = SOURCE if kind in ("masked", "decoder") else TARGET
        assert out.logits.shape == (BATCH, tokens, VOCABULARY)
    out.loss.backward()
    unused = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert unused == set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_tuple_where_it_is_asked_for(kind):
    model, inputs = model_of(kind), labeled(kind)
    assert_close(model(**inputs, return_dict=False)[0], model(**inputs).loss)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_random_in_evaluation(kind):
    model, inputs = model_of(kind, dropout=0.5), labeled(kind)
    assert torch.equal(model(**inputs).loss, model(**inputs).loss)
    model.train()
    assert not torch.equal(model(**inputs).loss, model(**inputs).loss)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kind", ["masked", "decoder"])
def test_padding_changes_nothing(kind, positions, side):
    model, read = model_of(kind, position_embedding_type=positions), ids(SOURCE)
    mask = padded(LENGTHS, side)
    logits = model(read, attention_mask=mask).logits
    for row, length in enumerate(LENGTHS):
        real = mask[row].bool()
        alone = model(read[row, real][None]).logits[0]
        assert len(alone) == length
        assert_close(logits[row, real], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_padding_of_a_source_and_of_a_target_changes_nothing(positions, side):
    model, source, target = model_of("text", position_embedding_type=positions), ids(SOURCE), ids(TARGET)
    ahead, beside = padded(LENGTHS, side), padded((3, TARGET, 5), side, TARGET)
    logits = model(source, ahead, target, beside).logits
    for row in range(BATCH):
        here, there = ahead[row].bool(), beside[row].bool()
        alone = model(source[row, here][None], decoder_input_ids=target[row, there][None]).logits[0]
        assert_close(logits[row, there], alone, rtol=1e-4, atol=1e-4)


def test_padding_of_a_recurrent_source_changes_nothing():
    model, source, target = model_of("recurrent"), ids(SOURCE), ids(TARGET)
    mask = padded(LENGTHS, "right")
    logits = model(source, mask, target).logits
    for row, length in enumerate(LENGTHS):
        alone = model(source[row : row + 1, :length], decoder_input_ids=target[row : row + 1]).logits[0]
        assert_close(logits[row], alone, rtol=1e-4, atol=1e-4)


def test_a_hole_in_a_mask_is_not_seen():
    decoder, encoder = (
        model_of("decoder", position_embedding_type=None),
        model_of("text", position_embedding_type=None),
    )
    mask = torch.tensor([[1, 1, 0, 0, 1, 0, 1], [0, 1, 1, 0, 1, 1, 0]])
    read, target = ids(7, 2), ids(5, 2)
    logits, said = decoder(read, mask).logits, encoder(read, mask, target).logits
    for row in range(2):
        real = mask[row].bool()
        assert_close(logits[row, real], decoder(read[row, real][None]).logits[0], rtol=1e-4, atol=1e-4)
        alone = encoder(read[row, real][None], decoder_input_ids=target[row][None]).logits[0]
        assert_close(said[row], alone, rtol=1e-4, atol=1e-4)


def test_a_row_without_tokens_is_no_number_that_spreads():
    model, mask = model_of("decoder"), padded((SOURCE, 0, 3), "left")
    logits = model(read := ids(SOURCE), mask).logits
    assert logits.isfinite().all()
    assert_close(logits[0], model(read[:1]).logits[0], rtol=1e-4, atol=1e-4)


def test_the_future_is_not_seen():
    model, read = model_of("decoder"), ids(SOURCE)
    changed = read.clone()
    changed[:, 5] = 3 + (changed[:, 5] - 2) % (VOCABULARY - 3)
    before, after = model(read).logits, model(changed).logits
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


# --- losses ------------------------------------------------------------------------------------------------


def test_the_decoders_loss_is_that_of_the_next_token():
    model, inputs = model_of("decoder"), labeled("decoder")
    inputs["labels"][1, 6:] = IGNORED
    logits = model(inputs["input_ids"]).logits
    want = F.cross_entropy(
        logits[:, :-1].flatten(0, 1), inputs["labels"][:, 1:].flatten(), ignore_index=IGNORED
    )
    assert_close(model(**inputs).loss, want)


@pytest.mark.parametrize("kind", ["text", "image", "recurrent"])
def test_targets_are_moved_by_one(kind):
    model, inputs = model_of(kind), labeled(kind)
    labels = inputs["labels"]
    labels[0, 4:] = IGNORED
    moved = model.prepare_decoder_input_ids_from_labels(labels)
    assert moved[0].tolist() == [START, *labels[0, :4].tolist(), PAD, PAD]
    logits = model(**given_without_labels(inputs), decoder_input_ids=moved).logits
    want = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
    assert_close(model(**inputs).loss, want)


def given_without_labels(inputs):
    return {name: value for name, value in inputs.items() if name != "labels"}


def test_masked_tokens_alone_make_the_loss():
    model, inputs = model_of("masked"), labeled("masked")
    inputs["labels"][:, ::2] = IGNORED
    logits, labels = model(inputs["input_ids"]).logits, inputs["labels"]
    want = -logits.log_softmax(-1).gather(2, labels.clamp(min=0)[..., None])[..., 0][labels != IGNORED].mean()
    assert_close(model(**inputs).loss, want)


def test_a_count_of_labels_divides_the_sum():
    model, inputs = model_of("masked"), labeled("masked")
    loss = model(**inputs).loss
    assert_close(model(**inputs, num_items_in_batch=2 * BATCH * SOURCE).loss, loss / 2)
    assert_close(model(**inputs, num_items_in_batch=torch.tensor(BATCH * SOURCE)).loss, loss)


def test_no_labels_cost_nothing():
    model, inputs = model_of("masked"), labeled("masked")
    loss = model(inputs["input_ids"], labels=torch.full_like(inputs["labels"], IGNORED)).loss
    loss.backward()
    assert loss == 0 and all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_an_answer_is_never_in_the_padding():
    model, inputs = model_of("span"), labeled("span")
    out = model(**inputs, attention_mask=padded((SOURCE, 5, 10), "right"))
    assert (out.start_logits[1, 5:] == -torch.inf).all() and out.end_logits[1, :5].isfinite().all()
    scores = out.start_logits, out.end_logits
    places = inputs["start_positions"], inputs["end_positions"]
    assert_close(out.loss, sum(F.cross_entropy(s, p) for s, p in zip(scores, places, strict=True)) / 2)


def test_segments_are_told_apart():
    model, read = model_of("span"), ids(SOURCE)
    segments = torch.zeros_like(read)
    assert torch.equal(model(read).start_logits, model(read, token_type_ids=segments).start_logits)
    segments[:, 4:] = 1
    assert not torch.allclose(model(read).start_logits, model(read, token_type_ids=segments).start_logits)


@pytest.mark.parametrize("kind", ["decoder", "text", "image"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_every_number_reaches_the_layers(kind, norm_first):
    changed = {
        "norm_first": norm_first,
        "norm_type": "rms",
        "hidden_act": "swiglu",
        "bias": False,
        "num_key_value_heads": 2,
        "layer_norm_eps": 1e-3,
    }
    model = model_of(kind, **changed, embedding_norm=True, init="zero", inner_dropout=0.1)
    layer = model.decoder.stack.layers[0]
    assert (layer.norm_first, layer.attention.num_kv_heads, layer.attention.dropout) == (norm_first, 2, 0.1)
    assert layer.feedforward.activation == "swiglu" and layer.feedforward.inner.bias is None
    assert isinstance(layer.attention_norm, torch.nn.RMSNorm) and layer.attention_norm.eps == 1e-3
    assert isinstance(model.decoder.embedding.norm, torch.nn.RMSNorm)
    assert model(**labeled(kind)).loss.isfinite()


def test_the_encoder_alone():
    config = rg.models.EncoderConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_attention_heads=HEADS, eos_token_id=END
    )
    hidden = rg.models.EncoderModel(config).eval()(ids(SOURCE)).last_hidden_state
    assert hidden.shape == (BATCH, SOURCE, WIDTH)


def test_patches_are_read_row_after_row():
    model, image = model_of("image", position_embedding_type=None), torch.zeros(1, 1, 15, 20)
    blank = model.encoder(image).last_hidden_state
    image[0, 0, 7, 11] = 1.0  # row 1, column 2 of 4
    encoder = model.encoder
    seen = []
    encoder.stack.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    assert not torch.equal(encoder(image).last_hidden_state, blank)
    vectors = seen[0][0]
    assert [i for i in range(12) if not torch.equal(vectors[i], vectors[0])] == [6]
    want = encoder.patches.bias + encoder.patches.weight[:, (7 - 5) * 5 + (11 - 10)]
    assert_close(vectors[6], want)


# --- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, call, error, message",
    [
        ("decoder", lambda m: m(ids(SOURCE)[0]), ShapeError,
         r"input_ids must be \(batch, tokens\), none 0, got \(11,\)"),
        ("decoder", lambda m: m(ids(SOURCE), padded([3] * 3, "left", 5)), ShapeError,
         r"attention_mask must be \(batch, tokens\) = \(3, 11\), with the tokens in the cache, got \(3, 5\)"),
        ("decoder", lambda m: m(ids(5), torch.zeros(3, 5)), MaskError,
         r"1 where a token is real .* got torch.float32 with .*: give \(mask == 0\).long\(\) where 0 means real"),
        ("decoder", lambda m: m(ids(5), torch.full((3, 5), 2)), MaskError, "1 where a token is real"),
        ("decoder", lambda m: m(ids(5), [1]), ShapeError, r"attention_mask must be \(batch, tokens\) .* got list"),
        ("decoder", lambda m: m(ids(42)), ArgumentError, "a learned table of 41 positions ends at position 40, got"),
        ("decoder", lambda m: m(ids(5), output_attentions=True), ArgumentError,
         r"run the model within rg.watch\(model\)"),
        ("masked", lambda m: m(ids(5), output_hidden_states=True), ArgumentError, "hook the layers"),
        ("text", lambda m: m(ids(5), inputs_embeds=torch.ones(1)), ArgumentError,
         "there must be no keyword 'inputs_embeds', got Tensor"),
        ("masked", lambda m: m(ids(5), token_type_ids=torch.ones(3, 5, dtype=torch.long)), ArgumentError,
         "config.type_vocab_size must say how many kinds token_type_ids name, got 0"),
        ("span", lambda m: m(ids(5), token_type_ids=ids(4)), ShapeError, r"token_type_ids must be \(3, 5\)"),
        ("span", lambda m: m(ids(5), start_positions=torch.ones(3)), ShapeError, "must be given together"),
        ("text", lambda m: m(ids(5)), ArgumentError, "a target must be given as decoder_input_ids or labels"),
        ("text", lambda m: m(labels=ids(5)), ArgumentError,
         "a source must be given as input_ids or encoder_outputs"),
        ("recurrent", lambda m: m(labels=ids(5)), ArgumentError,
         "a source must be given as input_ids or encoder_outputs"),
        ("recurrent", lambda m: m(ids(SOURCE), padded([3] * 3, "left"), labels=ids(5)), ArgumentError,
         "pad on the right"),
        ("recurrent", lambda m: m(ids(SOURCE), padded([3, 0, 1], "right"), labels=ids(5)), ArgumentError,
         "a text without tokens"),
        ("image", lambda m: m(labels=ids(5)), ArgumentError,
         "an image must be given as pixel_values or encoder_outputs"),
        ("image", lambda m: m(torch.ones(2, 1, 15, 15), labels=ids(5, 2)), ShapeError,
         r"pixel_values must be \(batch, channels, height, width\) = \(batch, 1, 15, 20\), got \(2, 1, 15, 15\)"),
    ],
)  # fmt: skip
def test_what_must_hold(kind, call, error, message):
    with pytest.raises(error, match=message):
        call(model_of(kind))


@pytest.mark.parametrize("kind", ["text", "image", "recurrent"])
def test_a_start_token_is_needed(kind):
    model = model_of(kind, decoder_start_token_id=None)
    with pytest.raises(
        ArgumentError, match="config.decoder_start_token_id must be set to train on labels, got None"
    ):
        model(**labeled(kind))


@pytest.mark.parametrize(
    "kind, changed, message",
    [
        (
            "decoder",
            {"position_embedding_type": "near"},
            'position_embedding_type must be "learned", "sinusoidal", .* got \'near\'',
        ),
        ("decoder", {"num_attention_heads": 5}, "num_heads must divide embed_dim"),
        ("masked", {"norm_type": "mid"}, 'norm_type must be "layer" or "rms"'),
        ("text", {"hidden_act": "tanh"}, "activation must be one of"),
        (
            "image",
            {"patch_size": 7},
            "height and width of an image must be multiples of patch_size, got 15 × 20 for 7",
        ),
        ("recurrent", {"score": "cosine"}, "score must be \"additive\", .* or None, got 'cosine'"),
        ("recurrent", {"score": "dot"}, 'score="dot" must compare states of one size, got 23 and 46'),
        ("recurrent", {"cell": "rnn"}, 'cell must be "gru" or "lstm"'),
        ("recurrent", {"order": "after"}, 'order must be "bahdanau" or "luong"'),
        (
            "recurrent",
            {"tie_word_embeddings": True},
            "embedding_size must be hidden_size to tie embeddings, got 24 and 23",
        ),
    ],
)
def test_what_a_config_must_say(kind, changed, message):
    with pytest.raises(ArgumentError, match=message):
        model_of(kind, **changed)


def test_a_grid_of_patches_has_positions_of_rows_and_columns():
    config = rg.models.ImageToTextConfig(
        vocab_size=31,
        hidden_size=24,
        num_attention_heads=3,
        image_size=(15, 20),
        patch_size=5,
        num_channels=1,
        position_embedding_type="sinusoidal",
        dropout=0.0,
    )
    encoder = rg.models.ImageToTextForConditionalGeneration(config).encoder
    places = encoder.positions(torch.zeros(1, 12, 24))[0].unflatten(0, (3, 4))
    assert (places[:, :1, :12] == places[:, :, :12]).all() and (places[:1, :, 12:] == places[:, :, 12:]).all()
    assert len({tuple(row.tolist()) for row in places.flatten(0, 1)}) == 12
    for number in range(6):
        turn = 2 / 100 ** (2 * number / 12)
        assert_close(places[2, 0, 2 * number], torch.tensor(turn).sin())
        assert_close(places[0, 2, 12 + 2 * number + 1], torch.tensor(turn).cos())


def test_a_grid_of_patches_needs_a_width_that_is_divided_by_four():
    config = rg.models.ImageToTextConfig(
        vocab_size=31,
        hidden_size=6,
        num_attention_heads=3,
        image_size=(8, 8),
        patch_size=4,
        position_embedding_type="sinusoidal",
    )
    with pytest.raises(
        ArgumentError, match="embed_dim must be a multiple of 4 for positions in rows and columns, got 6"
    ):
        rg.models.ImageToTextForConditionalGeneration(config)
