"""The files speak of the project alone."""

import subprocess

import pytest

from house import guards


def test_the_files_are_clean():
    files = guards.text_files(guards.ROOT)
    assert guards.ROOT / "pyproject.toml" in files
    assert guards.unclean_faults(files) == []


@pytest.mark.parametrize(
    "text, what",
    [
        ("see /" + "home/someone/x.py", "absolute path of one machine"),
        ("open('/" + "work/main')", "absolute path of one machine"),
        ("pip install -i https://py" + "pi.org/x", "host of a package registry"),
        ("an A" + "I-generated line", "word of the making"),
        ("<" * 7 + " HEAD", "merge marker"),
    ],
)
def test_an_unclean_line_is_found(tmp_path, text, what):
    file = tmp_path / "notes.md"
    file.write_text(f"first line\n{text}\n")
    (fault,) = guards.unclean_faults([file])
    assert fault.startswith(f"{file}:2: {what}: ")


def test_relative_paths_and_addresses_are_clean(tmp_path):
    file = tmp_path / "notes.md"
    file.write_text("src/work/x, ~/work/x, https://arxiv.org/home/x")
    assert guards.unclean_faults([file]) == []


def test_ignored_and_binary_files_are_left_out(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("out.txt")
    (tmp_path / "out.txt").write_text("ignored")
    (tmp_path / "weights").write_bytes(b"\0\1")
    assert guards.text_files(tmp_path) == [tmp_path / ".gitignore"]
