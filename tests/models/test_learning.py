"""Each model learns a few texts by heart, and says them."""

import pytest
import torch

from models.small import IGNORED, IMAGE, KINDS, TARGET, TEXT, labeled

TRAINED = {
    "masked": {},
    "span": {"type_vocab_size": 2},
    "decoder": {"position_embedding_type": "rotary"},
    "text": {"norm_first": False},
    "image": IMAGE,
    "sinusoidal": {"position_embedding_type": "sinusoidal"},
    "relative": {"position_embedding_type": "relative", "norm_type": "rms", "bias": False},
    "additive": {"score": "additive"},
    "general": {"score": "general", "order": "luong", "cell": "lstm"},
    "dot": {"score": "dot", "order": "luong", "bidirectional": False},
    "none": {"score": None},
}
KIND_OF = {"sinusoidal": "decoder", "relative": "text"} | dict.fromkeys(
    ("additive", "general", "dot", "none"), "recurrent"
)
LAYERS = {"num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 16}


@pytest.mark.parametrize("name", TRAINED)
def test_a_few_texts_are_learned_by_heart(name):
    kind = KIND_OF.get(name, name)
    model, config, _ = KINDS[kind]
    numbers = TEXT | ({} if kind == "recurrent" else LAYERS) | {"hidden_size": 32} | TRAINED[name]
    made, inputs = model(config(**numbers)), labeled(kind)
    if "labels" in inputs and kind != "decoder":
        inputs["labels"][:, -2:] = IGNORED
    if kind == "masked":
        inputs["labels"][:, ::2] = inputs["input_ids"][:, ::2]
    optimizer = torch.optim.Adam(made.parameters(), lr=5e-3)
    first = made(**inputs).loss.item()
    for _ in range(120):
        loss = made(**inputs).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # A decoder cannot know its first token, but that is no label.
    assert loss < 0.1 < 1.5 < first
    if kind in ("text", "image", "recurrent"):
        read = {n: t for n, t in inputs.items() if n != "labels"}
        made.eval()
        for way in ({"do_sample": False}, {"num_beams": 2}):
            said = made.generate(**read, max_new_tokens=TARGET - 2, **way)
            assert torch.equal(said[:, 1:], inputs["labels"][:, :-2])
