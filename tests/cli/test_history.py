"""`regard history` on histories that a training left, on those of the package, and on what a user gets wrong."""

import re

import pytest

from draw.test_history import a_history
from page.test_figures import pictures
from regard.tasks.common import pretrained
from regard.tasks.common.task import write_card

NAMES = ("entropy_fraction", "previous")


@pytest.fixture
def runs(tmp_path):
    """What `regard train translate --folder runs` leaves: histories and cards, of which only the first has losses."""
    made = {}
    for model, heads in (("transformer", 2), ("bahdanau", 1)):
        place = tmp_path / "runs" / model
        place.mkdir(parents=True)
        made[model] = a_history(looks=5, layers=2, heads=heads, statistics=NAMES, pictures=2)
        made[model].save(place / "history.safetensors")
        losses = {"losses": {"10": 4.5, "1": 7.25}} if model == "transformer" else {"losses": None}
        write_card(place, {"training": losses})
    return made


def test_a_table_and_a_page_of_each_model(regard, runs, tmp_path):
    status, out, err = regard("history", "translate", "--folder", "runs")
    assert (status, err) == (0, "")
    assert "translate, transformer: 4 attention heads, from step 1 to step 8" in out
    lines = re.findall(r"layer (\d) +(\d) +(\S+ → \S+) +previous (\S+ → \S+)", out)
    told = [
        (str(place), str(head), *(f"{first:.2f} → {last:.2f}" for first, last in ends))
        for own in runs.values()
        for place, layer in enumerate(own.layers)
        for head in range(layer.heads)
        for ends in [
            [own.of_statistic(name)[:, own.heads_of(place)][[0, -1], head].tolist() for name in NAMES]
        ]
    ]
    assert lines == told and len(told) == 6
    assert out.count("previous: Share that goes to the token just before.") == 1
    html = (tmp_path / "regard-history-translate.html").read_text()
    assert "<h1>translate: how its heads came to be</h1>" in html
    assert re.findall(r'<article id="history-\d"><h2>(.*?)</h2>', html) == ["transformer", "bahdanau"]
    assert html.count("From 7.25 at step 1 to 4.5 at step 10.") == 1 == html.count("What the model learned")
    assert "http" + "://" not in html


def test_one_model_where_it_is_wanted(regard, runs, tmp_path):
    (tmp_path / "runs" / "bahdanau" / "card.json").unlink()
    arguments = (
        "--only",
        "bahdanau",
        "--folder",
        "runs",
        "--page",
        "deep/down/one.html",
        "--figures",
        "drawn",
    )
    status, out, err = regard("history", "translate", *arguments)
    assert (status, err) == (0, "") and "transformer" not in out
    html = (tmp_path / "deep/down/one.html").read_text()
    assert "<h1>translate, bahdanau: how its heads came to be</h1>" in html and "<nav" not in html
    drawn = {path.name for path in (tmp_path / "drawn" / "bahdanau").iterdir()}
    assert {"entropy-fraction.png", "previous.png", "0-transformer.h.0.attn-head-0.png"} <= drawn
    assert {name.rpartition(".")[2] for name in drawn} == {"png"} and len(drawn) >= len(pictures(html))
    assert f"{len(drawn)} figures: drawn/bahdanau" in out


def test_without_a_folder_it_shows_what_the_package_keeps(regard, monkeypatch, tmp_path):
    assert pretrained.folder("caption", "transformer").parts[-3:] == (
        "regard_tasks",
        "caption",
        "transformer",
    )
    monkeypatch.setattr(pretrained, "folder", lambda task, model: tmp_path / f"{task}-{model}")
    (tmp_path / "caption-transformer").mkdir()
    a_history(looks=3, layers=1, heads=1, pictures=1).save(
        tmp_path / "caption-transformer" / "history.safetensors"
    )
    status, out, err = regard("history", "caption")
    assert (status, err) == (0, "") and "caption, transformer: 1 attention head," in out
    assert (tmp_path / "regard-history-caption.html").exists()


def test_a_model_without_attention_is_left_out(regard, tmp_path):
    for model in ("luong-dot", "luong-general", "luong-concat", "bahdanau", "transformer"):
        (tmp_path / "runs" / model).mkdir(parents=True)
        own = a_history(looks=2, layers=1, heads=1, pictures=0)
        own.save(tmp_path / "runs" / model / "history.safetensors")
    status, out, err = regard("history", "bottleneck", "--folder", "runs")
    assert (status, err) == (0, "") and "fixed" not in out
    assert out.count("1 attention head,") == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cook"], "the task must be one that Regard has, got 'cook'; known: translate, bottleneck"),
        (["translate", "--only", "lstm"], "the model must be one that translate has, got 'lstm'"),
        (
            ["bottleneck", "--only", "fixed"],
            "the model must have attention, whose history is kept, and 'fixed' of bottleneck has none: take luong-dot",
        ),
        (
            ["translate", "--folder", "nowhere"],
            "the history of the heads of 'transformer' must be in 'nowhere/transformer/history.safetensors', "
            "and there is no such file: regard train translate --only transformer --folder nowhere\n",
        ),
        (
            ["translate", "--folder", "runs", "--page", "runs"],
            "the page must go where files can be written, got",
        ),
        (
            ["translate", "--folder", "runs", "--figures", "runs/bahdanau/card.json"],
            "--figures must be a folder that can be written to, got",
        ),
    ],
)
def test_what_a_user_gets_wrong(regard, runs, arguments, message):
    status, out, err = regard("history", *arguments)
    assert status == 2 and err.startswith("regard: ") and message in err and "Traceback" not in out + err


def test_a_history_that_is_not_there_names_what_makes_it(regard, runs, monkeypatch, tmp_path):
    (tmp_path / "runs" / "transformer" / "history.safetensors").unlink()
    status, _, err = regard("history", "translate", "--folder", "runs")
    assert status == 2 and err.endswith(
        "regard train translate --only transformer --folder runs; for a model that is there: --only bahdanau\n"
    )
    monkeypatch.setattr(pretrained, "folder", lambda task, model: tmp_path / "empty")
    status, _, err = regard("history", "caption")
    assert status == 2 and err.endswith(
        "regard train caption --only transformer, then regard history caption --folder regard-train/caption\n"
    )


@pytest.mark.parametrize(
    ("card", "message"),
    [
        ("{", "is damaged"),
        ("[]", "is no card of Regard"),
        ('{"training": {"losses": {"1": 2}}}', "is no card"),
    ],
)
def test_a_damaged_card_is_named(regard, runs, tmp_path, card, message):
    (tmp_path / "runs" / "transformer" / "card.json").write_text(card)
    status, _, err = regard("history", "translate", "--folder", "runs")
    assert status == 2 and f"card.json: {message}" in err


@pytest.mark.parametrize("body", [{"training": {"losses": {"one": 2}}}, {"training": 3}, {}])
def test_a_card_that_says_nonsense_is_named(regard, runs, tmp_path, body):
    write_card(tmp_path / "runs" / "transformer", body)
    status, _, err = regard("history", "translate", "--folder", "runs")
    assert status == 2 and "card.json: is damaged" in err


def test_an_altered_card_is_named(regard, runs, tmp_path):
    path = tmp_path / "runs" / "transformer" / "card.json"
    path.write_text(path.read_text().replace("7.25", "7.35"))
    status, _, err = regard("history", "translate", "--folder", "runs")
    assert status == 2 and "card.json: is cut short or altered" in err


def test_a_damaged_history_is_named(regard, runs, tmp_path):
    (tmp_path / "runs" / "bahdanau" / "history.safetensors").write_bytes(b"no history")
    status, _, err = regard("history", "translate", "--folder", "runs")
    assert status == 2 and "bahdanau/history.safetensors: is no safetensors file that can be read" in err


def test_a_kept_history_without_roles_shows_those_of_the_trained_model(regard, tmp_path):
    status, _, err = regard("history", "language", "--only", "decoder", "--page", "page.html")
    assert (status, err) == (0, "")
    html = (tmp_path / "page.html").read_text()
    assert (
        "this is the trained model alone, as it reads one example" in html
        and "separator: attends to separators" in html
    )
