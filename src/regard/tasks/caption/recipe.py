"""`caption`: patches of an image in, words out."""

from __future__ import annotations

from typing import Any

from torch import nn

from regard.models import ImageToTextConfig, ImageToTextForConditionalGeneration
from regard.tasks.caption import data as caption
from regard.tasks.common import metrics
from regard.tasks.common.scores import SPECIAL, crossing, share, written
from regard.tasks.common.task import Card, Data, Task
from regard.training.recipe import Recipe

PATCH = 4  # pixels: a digit lies on four patches to nine
LONGEST = 20  # tokens that are written
RECIPE = Recipe(
    max_steps=6000,
    batch_size=64,
    learning_rate=1e-3,
    weight_decay=0.05,
    precision="bfloat16",
    logging_steps=50,
    save_steps=1000,
)
QUICK = Recipe(
    max_steps=300,
    batch_size=32,
    learning_rate=1e-3,
    weight_decay=0.05,
    precision="bfloat16",
    logging_steps=20,
)
SCENES = {False: (400_000, 2000), True: (5000, 200)}  # to train on, held out; by quick


def build(words: int) -> ImageToTextForConditionalGeneration:
    """Three layers for the image and two for the text, of four heads, 128 wide."""
    model = ImageToTextForConditionalGeneration(
        ImageToTextConfig(
            vocab_size=words,
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


def data(quick: bool, words: Any) -> Data:
    """Scenes; the words are always all that there are."""
    train, held = SCENES[quick]
    return Data(
        lambda: caption.Lessons(train),
        caption.Scenes(caption.scenes(held, held=True)),
        caption.collate,
        words or caption.vocabulary(),
    )


def score(model: Any, data: Data) -> Card:
    """Exact captions, and how often the largest cross weight of a digit's word is on the digit."""
    scenes = data.held.scenes
    exact = metrics.exact(written(model, data, LONGEST), [" ".join(scene.words) for scene in scenes])
    return {
        "exact": share(exact),
        "exact_by_digits": {
            str(size): share(
                [each for each, scene in zip(exact, scenes, strict=True) if len(scene.digits) == size]
            )
            for size in sorted({len(scene.digits) for scene in scenes})
        },
        "digits": crossing(model, data, [scene.truth(PATCH) for scene in scenes]),
    }


TASKS = (
    Task("caption", "transformer", ImageToTextForConditionalGeneration, RECIPE, QUICK, build, data, score),
)
