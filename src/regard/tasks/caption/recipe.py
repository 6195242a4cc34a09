"""`caption`: patches of an image in, words out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from regard.models import ImageToTextConfig, ImageToTextForConditionalGeneration
from regard.tasks.caption import data as caption
from regard.tasks.common import metrics
from regard.tasks.common.scores import SPECIAL, cross_attention_hits, generate_texts, mean_with_interval
from regard.tasks.common.task import Card, Data, Task
from regard.training.recipe import Recipe

# Pixels of a patch each way: a digit lies on four patches to nine.
PATCH = 4
# Tokens that are generated, more than a caption of four digits has.
LONGEST = 20
RECIPE = Recipe(
    max_steps=6000,
    batch_size=64,
    learning_rate=1e-3,
    weight_decay=0.05,
    precision="bfloat16",
    logging_steps=50,
    save_steps=1000,
)
QUICK = replace(RECIPE, max_steps=300, batch_size=32, logging_steps=20)
# Scenes to train on and held out, by `quick`.
SCENES = {False: (400_000, 2000), True: (5000, 200)}


def build(vocab_size: int) -> ImageToTextForConditionalGeneration:
    """Three layers for the image and two for the text, of four heads, 128 wide."""
    model = ImageToTextForConditionalGeneration(
        ImageToTextConfig(
            vocab_size=vocab_size,
            hidden_size=128,
            num_attention_heads=4,
            encoder_layers=3,
            num_hidden_layers=2,
            dropout=0.05,
            position_embedding_type="sinusoidal",
            image_size=(caption.CANVAS, caption.CANVAS),
            patch_size=PATCH,
            stem_channels=16,
            num_channels=1,
            init="xavier",
            **SPECIAL,
        )
    )
    # Most of a canvas is paper: where ink does not outweigh places, what a digit looks like is learned much later.
    nn.init.xavier_uniform_(model.get_parameter("encoder.patches.weight"), gain=2)
    return model


def data(quick: bool, tokenizer: Any) -> Data:
    """Scenes to train on and held-out ones, fewer where `quick`; the vocabulary does not depend on how many."""
    train, held = SCENES[quick]
    return Data(
        lambda: caption.Lessons(train),
        caption.Scenes(caption.scenes(held, held=True)),
        caption.collate,
        tokenizer or caption.vocabulary(),
    )


def score(model: Any, data: Data) -> Card:
    """The part of exact captions, and how often each head's largest weight is on the digit that a word names."""
    scenes = data.held_out.scenes
    exact = metrics.exact(generate_texts(model, data, LONGEST), [" ".join(scene.words) for scene in scenes])
    sizes = np.array([len(scene.digits) for scene in scenes])
    return {
        "exact": mean_with_interval(exact),
        "exact_by_digits": {
            str(size): mean_with_interval(exact[sizes == size]) for size in np.unique(sizes).tolist()
        },
        "digits": cross_attention_hits(model, data, [scene.truth(PATCH) for scene in scenes]),
    }


TASKS = (
    Task("caption", "transformer", ImageToTextForConditionalGeneration, RECIPE, QUICK, build, data, score),
)
