"""`regard look` on real models, and on everything a user gets wrong."""

import subprocess
import sys

import pytest

from page.reading import contents
from regard import load
from regard.cli.models import load_embedded
from regard.statistics.table import TABLE
from regard.web.next_tokens import logits_of


def test_without_arguments_it_shows_the_embedded_model(regard, tmp_path):
    status, out, err = regard("look")
    assert (status, err) == (0, "")
    assert "32 attention heads" in out
    assert TABLE["max_weight"].meaning in out.replace("\n", " ")
    page = (tmp_path / "regard-report.html").read_text()
    assert "count_words" in page and "http" + "://" not in page.split("<script")[0]


def test_the_report_says_what_the_model_says_comes_next(regard, folders, tmp_path):
    assert regard("look", "def quick(x): return x")[0] == 0
    text = contents((tmp_path / "regard-report.html").read_text())
    held = text.index["texts"][0]["next"]
    reader = load_embedded()
    inputs = reader.inputs(reader.encode("def quick(x): return x"))
    likeliest = logits_of(reader.run(inputs)).softmax(-1).topk(6, -1)
    assert (text.array(held["token"]) == likeliest.indices.numpy()).all()
    assert text.array(held["probability"]) == pytest.approx(likeliest.values.numpy(), rel=1e-3)
    # The logits of an encoder are of the token that stands there, those of a decoder of the next one.
    for name, has_next in (("encoder", False), ("encoder-decoder", True)):
        assert regard("look", str(folders[name]), "def f(x): return x")[0] == 0
        page = contents((tmp_path / "regard-report.html").read_text())
        assert page.index["texts"][0]["entry"]["next_tokens"] == has_next


def test_the_record_and_the_figures_are_kept(regard, tmp_path):
    status, _, _ = regard("look", "--record", "kept", "--figures", "drawn", "--report", "deep/down/page.html")
    assert status == 0
    record = load(tmp_path / "kept")
    assert len(record) == 4 and record.calls[0].entropy is not None
    drawn = {path.name for path in (tmp_path / "drawn").iterdir()}
    for name in ("heads", "entropy", "sharpest-head", "structure"):
        assert {f"{name}.png", f"{name}.svg", f"{name}.pdf"} <= drawn
    assert (tmp_path / "deep/down/page.html").stat().st_size > 10_000


def test_an_encoder_is_seen(regard, folders):
    status, out, _ = regard("look", str(folders["encoder"]), "def f(x): return x")
    assert status == 0 and "6 attention heads" in out


def test_an_encoder_decoder_shows_three_kinds(regard, folders, tmp_path):
    status, out, _ = regard("look", str(folders["encoder-decoder"]), "def f(x): return x", "--record", "kept")
    assert status == 0 and "24 attention heads" in out and "cross" in out
    record = load(tmp_path / "kept")
    cross = [call for call in record if call.kind == "cross"]
    assert len(cross) == 2 and cross[0].sizes.keys == len(record.source_tokens[0])
    assert cross[0].sizes.queries == len(record.tokens[0])


def test_a_text_alone_is_read_by_the_embedded_model(regard, tmp_path):
    status, out, err = regard("look", "def quick(x): return x")
    assert (status, err) == (0, "") and "Regard's embedded model" in out
    assert "quick" in (tmp_path / "regard-report.html").read_text()


def test_a_single_unknown_word_gets_both_readings(regard):
    status, _, err = regard("look", "hello")
    assert status == 2 and "there is no folder 'hello' here" in err
    assert "if it is a text for the embedded model: regard look language 'hello'" in err


def test_text_comes_from_a_file(regard, tmp_path):
    (tmp_path / "code.py").write_text("import os\nprint(os.name)\n")
    status, _, _ = regard("look", "--file", "code.py")
    assert status == 0 and "import" in (tmp_path / "regard-report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["look", "./nowhere"], "there is no folder './nowhere'"),
        (["look", "nobody/nothing"], "there is no folder 'nobody/nothing' here, and it could not be fetched"),
        (["look", "--file", "missing.txt"], "the file must be one that can be read, got 'missing.txt'"),
        (
            ["look", "--file", "binary"],
            "the file must hold UTF-8 text, got 'binary', which does not at byte 0",
        ),
        (["look", "--file", "."], "the file must be one that can be read, got '.'"),
        (
            ["look", "--only", "transformer"],
            "--only and --to must be left out where no task is shown; the tasks are",
        ),
        (["look", "language", "--to", "de"], "--only and --to must be left out where no task is shown"),
        (["look", "--device", "nonsense"], "the device must be one that torch has here, got 'nonsense'"),
        (["look", "--report", "binary/page.html"], "the report must go where files can be written"),
        (["look", "--figures", "binary"], "--figures must be a folder that can be written to"),
        (["look", "--record", "binary"], "binary"),
    ],
)
def test_a_mistake_gets_one_message_and_no_traceback(regard, tmp_path, arguments, message):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    status, _, err = regard(*arguments)
    assert status == 2
    assert err.startswith("regard: ") and message in err and "Traceback" not in err


def test_text_from_two_places_is_a_mistake(regard, folders):
    status, _, err = regard("look", str(folders["encoder"]), "text", "--file", "also.txt")
    assert status == 2 and "got both" in err


def test_an_empty_text_is_a_mistake(regard, folders):
    for name in folders:
        status, _, err = regard("look", str(folders[name]), "")
        assert status == 2 and "at least one token" in err


def test_a_text_longer_than_the_model_is_a_mistake(regard, folders):
    status, _, err = regard("look", str(folders["encoder"]), "x = 1\n" * 50)
    assert status == 2 and "at most 64 tokens" in err and "shorten it" in err


def test_a_folder_without_a_model_is_a_mistake(regard, tmp_path):
    (tmp_path / "empty").mkdir()
    status, _, err = regard("look", "./empty")
    assert status == 2 and "it has no config.json" in err


def test_a_damaged_model_is_a_mistake(regard, folders, tmp_path):
    import shutil

    damaged = shutil.copytree(folders["encoder"], tmp_path / "damaged")
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    status, _, err = regard("look", "./damaged", "text")
    assert status == 2 and "cannot be loaded" in err and "Traceback" not in err


def test_the_program_itself_runs_and_reports_mistakes(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "from regard.cli import main; main()", "look", "./nowhere"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 2 and done.stderr.startswith("regard: ") and "Traceback" not in done.stderr


def test_without_typer_it_says_what_to_install(tmp_path):
    code = "import sys; sys.modules['typer'] = None; from regard.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("regard: ")
    assert 'pip install "regard[look]"' in done.stderr and "Traceback" not in done.stderr


def test_the_embedded_model_says_its_limit_by_name(regard):
    status, _, err = regard("look", "--file", __file__)
    assert status == 2 and "at most 512 tokens, which is all that Regard's embedded model takes" in err
