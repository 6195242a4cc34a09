"""Layers in which tokens attend the tokens of their own segment alone."""

import pytest
import torch

pytest.importorskip("transformers")

import regard as rg
from regard.errors import ArgumentError

SIZES = {"vocab_size": 31, "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2}


def test_local_layers_see_their_own_segment_only():
    torch.manual_seed(3)
    config = rg.models.EncoderConfig(**SIZES, local_layers=1, type_vocab_size=4, dropout=0.0, init="xavier")
    model = rg.models.EncoderModel(config).eval()
    ids, segments = torch.randint(5, 31, (2, 11)), torch.tensor([[2] * 3 + [1] * 5 + [0] * 3] * 2)
    mask = torch.ones(2, 11, dtype=torch.long)
    mask[1, 9:] = 0
    with torch.no_grad(), rg.watch(model, keep="vectors") as record:
        model(input_ids=ids, attention_mask=mask, token_type_ids=segments)
    first, second = (
        [torch.stack([call.weights(h, batch=b) for h in range(3)]) for b in range(2)] for call in record
    )
    same = segments[0][:, None] == segments[0][None, :]
    assert (first[0][:, ~same] == 0).all() and (first[0][:, same] > 0).all()
    assert (first[1][:, :9, 9:] == 0).all() and (second[0] > 0).all() and (second[1][:, :9, 9:] == 0).all()
    with torch.no_grad():
        alone = model(input_ids=ids[1:, :9], token_type_ids=segments[1:, :9]).last_hidden_state
        padded = model(input_ids=ids, attention_mask=mask, token_type_ids=segments).last_hidden_state
    torch.testing.assert_close(padded[1, :9], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"local_layers": 1},
            "local_layers must be from 0 to num_hidden_layers, with .* got 1 of 2 layers and 0 segments",
        ),
        ({"local_layers": 3, "type_vocab_size": 2}, "got 3 of 2 layers"),
    ],
)
def test_local_layers_need_segments(settings, message):
    with pytest.raises(ArgumentError, match=message):
        rg.models.EncoderModel(rg.models.EncoderConfig(**SIZES, **settings))
    local = rg.models.EncoderModel(rg.models.EncoderConfig(**SIZES, local_layers=2, type_vocab_size=2))
    with pytest.raises(
        ArgumentError, match="token_type_ids must say the segments of 2 local layers, got None"
    ):
        local(input_ids=torch.tensor([[5, 6]]))
