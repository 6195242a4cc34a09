"""The code speaks the field's words."""

from house import guards, words


def test_no_retired_name_is_left():
    roots = [guards.SOURCE, *(guards.ROOT / name for name in ("tests", "benchmarks", "scripts"))]
    files = [path for root in roots for path in guards.python_files(root)]
    assets = [path for path in guards.SOURCE.rglob("*") if path.suffix in (".js", ".css", ".html")]
    assert words.retired_faults(files + assets) == []
    assert words.retired_faults(guards.python_files(guards.SOURCE), words.RETIRED_IN_PACKAGE) == []


def test_retired_names_are_found(tmp_path):
    bad = tmp_path / "seams" / "of_life.py"
    bad.parent.mkdir()
    bad.write_text("def settle(probe):\n    self.lives = call(roads=1)\n\nclass Prober: pass\n")
    assert [fault.rpartition(": ")[2] for fault in words.retired_faults([bad])] == [
        "life is history",
        "seams is hooks",
        "settle is resolve",
        "prober is monitor",
        "probe is monitor",
        "lives is histories",
        "roads is fast paths",
    ]


def test_no_local_is_called_by_a_word_alone():
    assert words.alone_faults(guards.python_files(guards.SOURCE), guards.SOURCE) == []


def test_a_word_alone_is_found(tmp_path):
    (tmp_path / "bad.py").write_text(
        "class Said:\n    given: int\n\ndef f(place):\n    own = [x for each in y]\n    found_here = own\n"
    )
    faults = words.alone_faults([tmp_path / "bad.py"], tmp_path, {"bad": {"own"}})
    assert [fault.split(": ")[1].split()[0] for fault in faults] == ["place", "each"]


def test_words_that_only_hold_a_retired_one_are_no_fault(tmp_path):
    good = tmp_path / "lifetime.py"
    good.write_text("resettled = broad = 1\n")
    assert words.retired_faults([good]) == []
