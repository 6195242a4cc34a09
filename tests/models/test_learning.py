"""Each model learns a few texts by heart, and says them."""

import pytest
import torch

from models.small import IGNORED, IMAGE, KINDS, TARGET, TEXT, labeled

TRAINED = {
    "masked": {}, "span": {"segments": 2}, "decoder": {"positions": "rotary"}, "text": {"norm": "post"}, "image": IMAGE,
    "sinusoidal": {"positions": "sinusoidal"}, "relative": {"positions": "relative", "kind": "rms", "bias": False},
    "additive": {"score": "additive"}, "general": {"score": "general", "order": "luong", "cell": "lstm"},
    "dot": {"score": "dot", "order": "luong", "bidirectional": False}, "none": {"score": None},
}  # fmt: skip
KIND_OF = {"sinusoidal": "decoder", "relative": "text"} | dict.fromkeys(
    ("additive", "general", "dot", "none"), "recurrent"
)
LAYERS = {"heads": 4, "depth": 2, "length": 16}


@pytest.mark.parametrize("name", TRAINED)
def test_a_few_texts_are_learned_by_heart(name):
    kind = KIND_OF.get(name, name)
    model, config, _ = KINDS[kind]
    numbers = TEXT | ({} if kind == "recurrent" else LAYERS) | {"width": 32} | TRAINED[name]
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
