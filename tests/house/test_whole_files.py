"""No file is written in place: what writes goes through `regard.files`, so that it is there whole or not at all."""

import pytest

from house import guards

IN_PLACE = {
    guards.SOURCE / "files" / "writing.py",  # does it for all others
    guards.SOURCE / "bench" / "machine.py",  # tells the kernel something, through a file
}


def test_every_file_is_written_whole():
    files = [*guards.python_files(guards.SOURCE), *guards.python_files(guards.ROOT / "scripts")]
    files += guards.python_files(guards.ROOT / "benchmarks")
    assert guards.plain_write_faults([path for path in files if path not in IN_PLACE]) == []
    assert guards.plain_write_faults(sorted(IN_PLACE))


@pytest.mark.parametrize(
    "line",
    [
        "path.write_text('x')",
        "path.write_bytes(b'x')",
        "open(path, 'w')",
        "path.open('ab')",
        "open(path, mode='x+')",
        "figure.savefig(path, dpi=160)",
        "numbers.save_file(tensors, path)",
        "table.to_parquet(path)",
        "model.save_pretrained(path)",
        "with open(path, 'r+') as unfinished: pass",
    ],
)
def test_a_file_that_is_written_in_place_is_found(tmp_path, line):
    (tmp_path / "wrong.py").write_text(f"import this\n{line}\n")
    (fault,) = guards.plain_write_faults([tmp_path / "wrong.py"])
    assert fault.startswith(f"{tmp_path / 'wrong.py'}:2: ") and fault.endswith("in place; take regard.files")


@pytest.mark.parametrize(
    "lines",
    [
        "with files.replacing(path) as unfinished:\n    figure.savefig(unfinished)",
        "with files.temporary(folder) as place:\n    (place / name).write_bytes(content)",
        "content = BytesIO()\nfigure.savefig(content)",
        "open(path)",
        "open(path, 'rb')",
        "image.open(path)",
        "webbrowser.open('index.html')",
    ],
)
def test_what_is_not_written_in_place_is_no_fault(tmp_path, lines):
    (tmp_path / "right.py").write_text(lines)
    assert guards.plain_write_faults([tmp_path / "right.py"]) == []
