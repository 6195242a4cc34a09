"""Models on disk and in the Auto classes; tables that are one; types; counts."""

import pytest
import torch
import transformers
from torch.testing import assert_close

import regard as rg
from models.small import BATCH, KINDS, POSITIONS, VOCABULARY, given, labeled, model_of
from regard.errors import ArgumentError

AUTO = {
    "masked": transformers.AutoModelForMaskedLM,
    "span": transformers.AutoModelForQuestionAnswering,
    "point": rg.models.EncoderForPointing,  # transformers has no Auto class for it
    "decoder": transformers.AutoModelForCausalLM,
    "text": transformers.AutoModelForSeq2SeqLM,
    "image": transformers.AutoModelForImageTextToText,
    "recurrent": transformers.AutoModelForSeq2SeqLM,
}


def loaded(model, folder, auto, **how):
    """The same model from disk, with nothing missing."""
    model.save_pretrained(folder)
    assert {file.suffix for file in folder.iterdir()} == {".json", ".safetensors"}
    got, info = auto.from_pretrained(folder, output_loading_info=True, **how)
    assert not any(info.values()), info
    assert type(got) is type(model)
    for parameter in got.parameters():  # what was read lies in a file, where matmul may round otherwise
        parameter.data = parameter.data.clone()
    return got


def same(a, b):
    weights = b.state_dict()
    return a.state_dict().keys() == weights.keys() and all(
        torch.equal(tensor, weights[name]) for name, tensor in a.state_dict().items()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_comes_back_bit_by_bit(kind, tmp_path):
    model, inputs = model_of(kind), labeled(kind)
    back = loaded(model, tmp_path, AUTO[kind])
    assert same(model, back) and back.config.to_diff_dict() == model.config.to_diff_dict()
    for mine, other in zip(model(**inputs).to_tuple(), back(**inputs).to_tuple(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("positions", POSITIONS)
def test_positions_come_back(positions, tmp_path):
    model, inputs = model_of("text", position_embedding_type=positions), labeled("text")
    assert torch.equal(loaded(model, tmp_path, AUTO["text"])(**inputs).logits, model(**inputs).logits)


@pytest.mark.parametrize(
    "score, order, cell",
    [
        ("additive", "luong", "lstm"),
        ("concat", "bahdanau", "gru"),
        ("general", "luong", "gru"),
        (None, "luong", "lstm"),
    ],
)
def test_recurrent_forms_come_back(score, order, cell, tmp_path):
    model = model_of(
        "recurrent", score=score, order=order, cell=cell, num_hidden_layers=2, source_vocab_size=37
    )
    inputs = labeled("recurrent")
    assert torch.equal(loaded(model, tmp_path, AUTO["recurrent"])(**inputs).logits, model(**inputs).logits)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "point"])
def test_a_config_makes_its_model(kind):
    model = model_of(kind)
    assert type(AUTO[kind].from_config(model.config)) is type(model)
    assert type(transformers.AutoConfig.for_model(model.config.model_type)) is type(model.config)


def test_the_encoder_is_the_plain_model():
    assert type(transformers.AutoModel.from_config(rg.models.EncoderConfig())) is rg.models.EncoderModel


def test_a_new_head_on_an_old_encoder_is_drawn(tmp_path):
    old = model_of("masked", position_embedding_type="relative")
    old.save_pretrained(tmp_path)
    pointing, info = rg.models.EncoderForPointing.from_pretrained(tmp_path, output_loading_info=True)
    assert set(info["missing_keys"]) == {"pointer.query", "pointer.key.weight"}
    assert same(pointing.encoder, old.encoder)
    assert 0.6 < pointing.pointer.query.std() < 1.5 and pointing.pointer.key.weight.std() > 0.1
    torch.manual_seed(0)
    new, info = rg.models.EncoderForQuestionAnswering.from_pretrained(tmp_path, output_loading_info=True)
    assert set(info["missing_keys"]) == {"span.weight", "span.bias"}
    assert same(new.encoder, old.encoder)
    assert new.span.bias.eq(0).all() and 0.01 < new.span.weight.std() < 0.03


def test_what_a_checkpoint_lacks_is_drawn_as_in_a_new_model(tmp_path):
    model = model_of("decoder", init="zero", position_embedding_type="alibi")
    kept = {
        name: t for name, t in model.state_dict().items() if "layers.1." not in name and "lm_head" not in name
    }
    model.save_pretrained(tmp_path, state_dict=kept)
    back = rg.models.DecoderForCausalLM.from_pretrained(tmp_path)
    first, second = back.decoder.stack.layers
    assert same(first, model.decoder.stack.layers[0])
    assert second.attention.output.weight.eq(0).all() and second.attention.qkv.weight.std() > 0.01
    assert second.attention_norm.weight.eq(1).all()
    assert torch.equal(
        second.attention.positions.slopes, model.decoder.stack.layers[1].attention.positions.slopes
    )


def test_one_new_model_gives_all_that_is_lacking(tmp_path, monkeypatch):
    model_of("text", position_embedding_type="alibi", num_hidden_layers=3).save_pretrained(tmp_path)
    built = []
    for kind in (rg.models.EncoderModel, rg.models.EncoderDecoderForConditionalGeneration):
        build = kind.__init__
        monkeypatch.setattr(kind, "__init__", lambda self, *a, build=build: built.append(build(self, *a)))
    back = rg.models.EncoderDecoderForConditionalGeneration.from_pretrained(tmp_path)
    # The model and its encoder; what they lack, with an encoder in it; and what the encoder lacks.
    assert len(built) == 5
    assert not any(part._new for part in (back, back.encoder))


# --- tables that are one -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["masked", "decoder", "text", "image"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_projection_is_the_table_where_the_config_says_so(kind, tied, tmp_path):
    model = model_of(kind, tie_word_embeddings=tied)
    table = model.get_input_embeddings().weight
    assert (model.lm_head.weight is table) == tied
    back = loaded(model, tmp_path, AUTO[kind])
    assert (back.lm_head.weight is back.get_input_embeddings().weight) == tied


@pytest.mark.parametrize("kind, sizes", [("text", {}), ("recurrent", {"hidden_size": 24})])
def test_one_vocabulary_is_one_table(kind, sizes):
    one = model_of(kind, **sizes, tie_word_embeddings=True)
    table = one.get_input_embeddings().weight
    assert one.encoder.get_input_embeddings().weight is table and one.lm_head.weight is table
    two = model_of(kind, **sizes, source_vocab_size=41)
    assert two.encoder.get_input_embeddings().weight.shape[0] == 41
    assert two.get_input_embeddings().weight.shape[0] == VOCABULARY


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mean", [True, False])
def test_a_vocabulary_grows(kind, mean, tmp_path):
    model, inputs = model_of(kind), labeled(kind)
    before = model(**inputs)
    model.resize_token_embeddings(VOCABULARY + 6, mean_resizing=mean)
    assert model.config.vocab_size == VOCABULARY + 6
    after = loaded(model, tmp_path, AUTO[kind])(**inputs)
    if kind in ("span", "point"):
        assert_close(after.loss, before.loss)
    else:
        assert after.logits.shape[2] == VOCABULARY + 6
        assert_close(after.logits[..., :VOCABULARY], before.logits)


# --- counts and types --------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kind", ["decoder", "text", "image"])
def test_parameters_are_counted_without_building(kind, positions):
    for changed in (
        {},
        {
            "norm_type": "rms",
            "hidden_act": "geglu",
            "bias": False,
            "num_key_value_heads": 2,
            "norm_first": False,
        },
    ):
        model = KINDS[kind][0](KINDS[kind][1](**KINDS[kind][2], position_embedding_type=positions, **changed))
        assert rg.models.parameters_of(model.config) == model.num_parameters()


def test_parameters_of_both_vocabularies_and_depths():
    config = rg.models.EncoderDecoderConfig(
        source_vocab_size=41, encoder_layers=3, tie_word_embeddings=False, embedding_norm=True
    )
    model = rg.models.EncoderDecoderForConditionalGeneration(config)
    assert rg.models.parameters_of(config) == model.num_parameters()
    config = rg.models.EncoderConfig(type_vocab_size=2, position_embedding_type="relative")
    assert rg.models.parameters_of(config) == rg.models.EncoderModel(config).num_parameters()


def test_states_are_not_counted():
    with pytest.raises(ArgumentError, match="config must be that of a transformer, got RecurrentConfig"):
        rg.models.parameters_of(rg.models.RecurrentConfig())


def test_gpt2_is_as_large_as_it_is():
    config = rg.models.DecoderConfig(
        vocab_size=50257,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        max_position_embeddings=1024,
    )
    assert rg.models.parameters_of(config) == rg.nn.parameters_of(rg.nn.PUBLISHED["GPT-2 small"]) == 124439808


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_other_types(kind, dtype, tmp_path):
    model, inputs = model_of(kind), labeled(kind)
    loss = model(**inputs).loss
    back = loaded(model, tmp_path, AUTO[kind], dtype=dtype)
    assert back.dtype == dtype
    assert_close(back(**inputs).loss.double(), loss.double(), rtol=0.05, atol=0.05)


def test_images_need_no_vocabulary():
    model = model_of("image")
    assert model.encoder.main_input_name == "pixel_values"
    with pytest.raises(NotImplementedError):
        model.encoder.get_input_embeddings()
    assert model.encoder(**given("image")).last_hidden_state.shape == (BATCH, 12, 24)
