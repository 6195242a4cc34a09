"""`caption` on scenes: what it looked at is named by rows and columns, and marked where the right caption is known."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from regard import load
from regard.errors import ArgumentError, ModelError
from regard.page import report
from regard.tasks.caption import data as caption
from regard.tasks.caption import look as looks_caption
from regard.tasks.common import pretrained
from regard.tasks.common.looks import look
from regard.tasks.common.result import Written
from regard.tasks.common.tokenizer import END, SPECIAL, START
from tasks.reading import plain, written

LAYER, HEAD = "decoder.stack.layers.1.crossing", 2
SCENE = caption.scenes(1, size=3, held=True)[0]
SIDE = looks_caption.SIDE


def patch(row, column):
    """A patch's number, of its row and column from 1."""
    return SIDE * (row - 1) + column - 1


@pytest.fixture
def wrote(fresh, monkeypatch):
    """`wrote("a two", [patches])`: from now on these words are written, and each looked at one patch."""
    _, words = fresh("caption")

    def make(said, looked_at, ended=True):
        ids = [*words.encode(said), *[END] * ended]
        weights = torch.full((len(ids), SIDE * SIDE), 0.25 / (SIDE * SIDE - 1))
        for row, place in enumerate(looked_at):
            weights[row, place] = 0.75
        heads = [torch.full_like(weights, 1 / SIDE**2), torch.full_like(weights, 1 / SIDE**2), weights]
        record = type("Seen", (dict,), {"info": {}})({LAYER: SimpleNamespace(weights=heads.__getitem__)})
        done = Written(ids, torch.ones(len(ids)), [words.all[number] for number in ids], record)
        monkeypatch.setattr(looks_caption, "write", lambda *_: done)

    return make


def right_places():
    """For each word of the scene's caption a patch in the middle of its digit, for other words the first."""
    corners = iter(SCENE.corners)
    return [
        patch(*((corner + 4) // 4 + 1 for corner in next(corners))) if word in caption.NAMES else 0
        for word in SCENE.words
    ]


def test_right_words_are_marked_where_they_looked_at_their_digit(wrote):
    places = right_places()
    wrote(SCENE.words, places)
    looked = look("caption")
    assert looked.said == " ".join(SCENE.words)
    assert looked.header == ("written", "looked at (row, column)", "weight", "")
    assert [row[0] for row in looked.rows] == [*SCENE.words]
    assert [row[1] for row in looked.rows] == [f"{place // SIDE + 1},{place % SIDE + 1}" for place in places]
    assert {row[2] for row in looked.rows} == {"0.75"}
    assert [row[3] for row in looked.rows] == ["✓" if word in caption.NAMES else "" for word in SCENE.words]
    assert looked.notes == ("Attention was on the right digit for 3 of 3 digits.",)
    ((under, figure),) = looked.figures
    assert under == looked.notes[0] and looked.record.info["text"] == looked.said
    assert f"Where {LAYER}, head {HEAD}, looked while it wrote each word." in written(figure)


def test_a_digit_that_was_not_looked_at_is_marked_so(wrote):
    places = right_places()
    named = [row for row, word in enumerate(SCENE.words) if word in caption.NAMES]
    places[named[1]] = places[named[0]]
    wrote(SCENE.words, places)
    looked = look("caption")
    assert [looked.rows[row][3] for row in named] == ["✓", "✗", "✓"]
    assert looked.notes == ("Attention was on the right digit for 2 of 3 digits.",)


def test_a_wrong_caption_has_no_marks(wrote):
    wrote(("a", "two"), [3, 9])
    looked = look("caption")
    assert looked.notes == (f"This is wrong: it should be {' '.join(SCENE.words)!r}.",)
    assert looked.rows == (("a", "1,4", "0.75", ""), ("two", "2,2", "0.75", ""))


@pytest.mark.parametrize("ended", [False, True])
def test_the_end_is_shown_only_where_nothing_else_is_written(wrote, ended):
    wrote(("a",) * 20, [0] * 20, ended)
    assert [row[0] for row in look("caption").rows] == ["a"] * 20
    wrote((), [5])
    looked = look("caption")
    assert looked.rows == (("<end>", "1,6", "0.75", ""),) and looked.said == "" and looked.figures


def test_special_tokens_do_not_make_a_caption_right(wrote):
    wrote((*SCENE.words[:2], SPECIAL[START], *SCENE.words[2:]), [0] * (len(SCENE.words) + 1))
    looked = look("caption")
    assert looked.said == " ".join(SCENE.words) and looked.rows[2][0] == "<start>"
    assert all(mark == "" for *_, mark in looked.rows)


@pytest.fixture
def picture(tmp_path):
    image = pytest.importorskip("PIL.Image")
    gray = np.rint(255 - 255 * SCENE.image[0].numpy()).astype(np.uint8)
    image.fromarray(np.kron(gray, np.ones((3, 3), dtype=np.uint8))).save(tmp_path / "scene.png")
    return tmp_path / "scene.png"


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_a_picture_is_looked_at_and_not_checked(fresh, picture, kind):
    models, words = fresh("caption")
    looked = look("caption", kind(picture))
    assert looked.notes[0] == "The picture was drawn again at 32 × 32 pixels, from 96 × 96."
    assert not any("wrong" in note or "right" in note for note in looked.notes)
    record = looked.record
    assert record.tokens[0][0] == "<start>" and record.source_tokens[0][patch(3, 5)] == "3,5"
    weights = record[LAYER].weights(HEAD)
    for row, (_, where, weight, mark) in enumerate(looked.rows):
        place = patch(*map(int, where.split(",")))
        assert (
            place == int(weights[row].argmax())
            and weight == f"{float(weights[row].max()):.2f}"
            and mark == ""
        )
    ids = models["transformer"].generate(
        pixel_values=SCENE.image[None], max_new_tokens=20, do_sample=False, num_beams=1
    )
    assert looked.said == words.decode(ids[0].tolist())


def test_a_new_model_is_not_sure(fresh):
    models, _ = fresh("caption")
    look("caption")
    with torch.no_grad():
        models["transformer"].lm_head.weight.mul_(0.01)  # all words are then almost equally likely
    looked = look("caption")
    assert looked.notes[0].startswith("The model is not sure: it gave '")
    assert looked.notes[1] == f"This is wrong: it should be {' '.join(SCENE.words)!r}."


def test_the_record_is_kept_and_reported(fresh, picture, tmp_path):
    fresh("caption")
    looked = look("caption", picture)
    looked.record.save(tmp_path / "kept")
    again = load(tmp_path / "kept")
    assert again.source_tokens == looked.record.source_tokens and len(again) == len(looked.record)
    html = report(looked.record, figures=looked.figures)
    assert "<h1>caption, transformer</h1>" in html and plain(looked.figures[0][0]) in plain(html)
    drawn = io.BytesIO()
    looked.figures[0][1].savefig(drawn, dpi=50)
    assert drawn.getvalue().startswith(b"\x89PNG")


def test_what_is_no_picture_is_said_before_a_model_is_loaded(monkeypatch, tmp_path):
    monkeypatch.setattr(pretrained, "root", lambda: tmp_path)
    with pytest.raises(ArgumentError, match="the picture must be a file, and there is no 'nowhere'"):
        look("caption", "nowhere")
    with pytest.raises(ArgumentError, match="the picture must be one that can be read"):
        look("caption", tmp_path)
    with pytest.raises(ModelError, match="there is no 'transformer' of caption: regard train caption"):
        look("caption")
