"""Scenes: real digits that are held out by drawing, captions that are true, boxes that hold the ink."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from regard.tasks.caption import data as caption
from regard.tasks.caption import recipe
from regard.tasks.caption.data import CANVAS, NAMES, RELATIONS, SIDE, Scene
from regard.tasks.common.batches import IGNORED
from regard.tasks.common.tokenizer import END


def test_held_out_drawings_are_in_no_training_scene():
    train, held = (
        {s for scene in caption.scenes(1500, held=held) for s in scene.samples} for held in (False, True)
    )
    train |= {s for place in range(1500) for s in caption.Lessons(1500).scene(place).samples}
    assert not train & held
    assert len(held) > 300 and len(train) > 1200 and len(held | train) <= 1797


def test_the_same_seed_gives_the_same_scenes():
    assert caption.scenes(31, seed=3) == caption.scenes(31, seed=3) != caption.scenes(31, seed=4)


def test_every_scene_is_of_its_drawings_at_their_places_and_of_nothing_else():
    images, kinds = load_digits().images / 16, load_digits().target
    for scene in caption.scenes(97):
        image = scene.image.clone()
        assert image.shape == (1, CANVAS, CANVAS) and image.min() == 0 and image.max() <= 1
        for digit, sample, (top, left) in zip(scene.digits, scene.samples, scene.corners, strict=True):
            box = image[0, top : top + SIDE, left : left + SIDE]
            assert digit == kinds[sample] and box.shape == (SIDE, SIDE)
            assert torch.equal(box, torch.from_numpy(images[sample]).float())
            box.zero_()
        assert (image == 0).all()


def true(scene):
    """What the caption says of each digit and the next one, read word by word, against where the ink is."""
    said = " ".join(scene.words)
    for i, (one, other) in enumerate(zip(scene.corners, scene.corners[1:], strict=False)):
        first, second = (NAMES[digit] for digit in scene.digits[i : i + 2])
        part = said.split(first, 1)[1]
        relation = part.split(" a", 1)[0].strip() if not part.startswith(" above") else "above"
        assert relation in RELATIONS, (said, relation)
        gaps = {
            "above": other[0] - one[0],
            "left of": other[1] - one[1],
            "right of": one[1] - other[1],
        }
        assert max(gaps, key=gaps.get) == relation and gaps[relation] >= caption.CLEAR
        assert sorted(gaps.values())[-1] - sorted(gaps.values())[-2] >= caption.CLEAR
        said = part
        assert second in said
    return True


def test_captions_are_true_and_there_is_one_for_a_scene():
    drawn = caption.scenes(400, seed=1)
    assert all(true(scene) for scene in drawn)
    for scene in drawn:
        assert list(scene.corners) == sorted(scene.corners)
    assert {len(scene.digits) for scene in drawn} == {2, 3, 4}
    words = " ".join(word for scene in drawn for word in scene.words)
    assert all(words.count(relation) > 100 for relation in RELATIONS)
    assert all(words.count(name) > 50 for name in NAMES)


def test_a_caption_by_hand():
    scene = Scene((8, 7, 2), (0, 1, 2), ((0, 0), (2, 20), (20, 22)))
    assert " ".join(scene.words) == "an eight left of a seven above a two"


def test_the_truth_is_the_patches_that_a_digit_lies_on():
    truth = Scene((7, 2), (0, 1), ((4, 8), (19, 15))).truth(4)
    assert truth.shape == (6, 64)  # a, seven, above, a, two, end
    assert truth.any(1).tolist() == [False, True, False, False, True, False]
    assert truth[1].nonzero().flatten().tolist() == [10, 11, 18, 19]
    rows, columns = range(19 // 4, (19 + 7) // 4 + 1), range(15 // 4, (15 + 7) // 4 + 1)
    assert truth[4].nonzero().flatten().tolist() == [8 * row + column for row in rows for column in columns]


@pytest.mark.parametrize("patch", [2, 4, 8])
def test_the_truth_holds_all_ink(patch):
    for scene in caption.scenes(29, seed=8):
        inked = scene.image[0].unflatten(1, (-1, patch)).unflatten(0, (-1, patch)).sum((1, 3)).flatten() > 0
        truth = scene.truth(patch)
        assert truth.shape == (len(scene.words) + 1, (CANVAS // patch) ** 2)
        assert not (inked & ~truth.any(0)).any() and truth.any(1).sum() == len(scene.digits)


def test_a_batch():
    scenes = caption.scenes(5, seed=2)
    batch = caption.collate(list(caption.Scenes(scenes)))
    assert batch["pixel_values"].shape == (5, 1, CANVAS, CANVAS)
    for image, row, scene in zip(batch["pixel_values"], batch["labels"], scenes, strict=True):
        assert torch.equal(image, scene.image)
        said = row[row != IGNORED].tolist()
        assert said[-1] == END and caption.vocabulary().decode(said) == " ".join(scene.words)


def boxes(scene, image):
    """The drawings of an image, `(digits, SIDE · SIDE)`, each centered and of length 1; nothing is beside them."""
    left = image[0].clone()
    rows = []
    for top, side in scene.corners:
        box = left[top : top + SIDE, side : side + SIDE]
        rows.append(box.flatten().clone())
        box.zero_()
    assert not left.any()
    return unit(torch.stack(rows))


def unit(rows):
    return torch.nn.functional.normalize(rows - rows.mean(1, keepdim=True))


def test_bent_drawings_are_others_that_stay_close():
    lessons = caption.Lessons(151, seed=5)
    images, kinds = load_digits().images, torch.from_numpy(load_digits().target)
    every, near, right = unit(torch.from_numpy(images).float().flatten(1)), [], []
    for place in range(len(lessons)):
        scene, bent = lessons.scene(place), lessons[place]
        (straight,) = caption.Scenes([scene])
        assert torch.equal(bent["labels"], straight["labels"])
        image = bent["pixel_values"]
        assert image.shape == (1, CANVAS, CANVAS) and image.dtype == torch.float32
        assert image.min() == 0 and image.max() <= 1
        drawn = boxes(scene, image)
        near += (drawn * boxes(scene, straight["pixel_values"])).sum(1).tolist()
        right += (kinds[(drawn @ every.T).argmax(1)] == torch.tensor(scene.digits)).tolist()
    near, right = torch.tensor(near), torch.tensor(right).double()
    assert near.max() < 0.999 and near.mean() > 0.7 and near.quantile(0.05) > 0.5
    assert right.mean() > 0.8  # the nearest of all drawings is mostly of the same digit


def test_scenes_to_learn_from_are_made_by_their_place():
    lessons, again, others = (
        caption.Lessons(41, seed=2),
        caption.Lessons(61, seed=2),
        caption.Lessons(41, seed=3),
    )
    for place in range(len(lessons)):
        assert lessons.scene(place) == again.scene(place) != others.scene(place)
        for name, tensor in lessons[place].items():
            assert torch.equal(tensor, lessons[place][name]) and torch.equal(tensor, again[place][name])
    assert {len(lessons.scene(place).digits) for place in range(len(lessons))} == {1, 2, 3, 4}
    assert len({lessons.scene(place) for place in range(len(lessons))}) == len(lessons)


def test_a_drawing_is_bent_anew_each_time():
    lessons, seen = caption.Lessons(2000, seed=4), {}
    for place in range(len(lessons)):
        scene = lessons.scene(place)
        (top, left), sample = scene.corners[0], scene.samples[0]
        box = lessons[place]["pixel_values"][0, top : top + SIDE, left : left + SIDE]
        seen.setdefault(sample, []).append(box)
    twice = [boxes for boxes in seen.values() if len(boxes) > 1]
    assert len(twice) > 300
    assert not any(torch.equal(boxes[0], boxes[1]) for boxes in twice)
    one, other = caption._bent((7, 7), np.random.default_rng(0))  # one drawing, twice in a scene
    assert not torch.equal(one, other)


def test_held_out_drawings_are_never_bent():
    data = recipe.data(True, None)
    assert isinstance(data.train(), caption.Lessons) and isinstance(data.held_out, caption.Scenes)
    for scene, example in zip(data.held_out.scenes, data.held_out, strict=True):
        assert torch.equal(example["pixel_values"], scene.image)
