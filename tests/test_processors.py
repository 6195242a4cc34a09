"""Results of each kind of processor: how a kind is known, and the table that is made of them."""

import json

import pytest
from benchmarks import common, processors

from regard.bench import machine

PAGE = common.ROOT / "docs" / "performance.md"


def facts(**values):
    """What Linux would say of a processor's cores."""
    text = "\n".join(f"{name.replace('_', ' ')}\t: {value}" for name, value in values.items())
    return text.replace("vendor id", "vendor_id")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"vendor_id": "AuthenticAMD", "cpu_family": 25, "model": 17, "flags": "avx2 avx512f"}, "zen4"),
        ({"vendor_id": "AuthenticAMD", "cpu_family": 25, "model": 1, "flags": "avx2"}, "zen3"),
        ({"vendor_id": "AuthenticAMD", "cpu_family": 26, "model": 2, "flags": "avx2 avx512f"}, "zen5"),
        (
            {"vendor_id": "GenuineIntel", "cpu_family": 6, "model": 143, "flags": "amx_tile"},
            "sapphire-rapids",
        ),
        ({"vendor_id": "GenuineIntel", "cpu_family": 6, "model": 999, "flags": "avx2 avx512f"}, "avx512f"),
        ({"vendor_id": "GenuineIntel", "cpu_family": 25, "model": 17, "flags": "avx2 sse"}, "avx2"),
        ({"Features": "fp asimd"}, "asimd"),
    ],
)
def test_a_kind_is_known_by_what_linux_says(said, kind, monkeypatch, tmp_path):
    file = tmp_path / "cpuinfo"
    # Two cores alike.
    file.write_text(f"{facts(**said)}\n\n{facts(**said)}\n")
    monkeypatch.setattr(machine, "Path", lambda _: file)
    assert machine.kind() == kind


def test_cores_that_differ_are_of_no_known_kind(monkeypatch, tmp_path):
    zen = {"vendor_id": "AuthenticAMD", "cpu_family": 25, "flags": "avx2"}
    file = tmp_path / "cpuinfo"
    file.write_text(f"{facts(**zen, model=17)}\n\n{facts(**zen, model=1)}\n")
    monkeypatch.setattr(machine, "Path", lambda _: file)
    assert machine.kind() == "avx2"


def test_the_page_has_the_table_of_the_result_files():
    page = PAGE.read_text()
    for line in processors.lines():
        assert line in page, "run python -m benchmarks.processors"


def test_a_bar_that_is_missed_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    ratios = {
        "causal, n 1024, dim 64": {"regard_over_sdpa": 0.7, "regard_over_plain": 1.2},
        "causal, n 4096, dim 64": {"regard_over_sdpa": 0.8, "regard_over_plain": 1.01},
        "full, n 4096, dim 64": {"regard_over_sdpa": 0.95, "regard_over_plain": 1.02},
        "causal, n 4096, dim 128": {"regard_over_sdpa": 0.5, "regard_over_plain": 1.04},
    }
    (tmp_path / "rows.zen4.json").write_text(json.dumps({"figures": ratios}))
    (tmp_path / "rows.avx2.json").write_text(
        json.dumps({"figures": {"causal, n 4096, dim 64": {"regard_over_sdpa": 0.8}}})
    )
    (tmp_path / "tiles.zen4.json").write_text(json.dumps({"figures": {"any": {"regard_over_sdpa": 2.5}}}))
    # Older than one of the masks that are asked for.
    shares = {
        mask: {"fold_time_over_its_share": x}
        for mask, x in (("window of 256", 1.2), ("strided and local", 2.0))
    }
    (tmp_path / "sparse.zen4.json").write_text(json.dumps({"figures": {"dim 64": shares}}))
    with pytest.raises(AssertionError, match="a bar has settings"):
        list(processors.lines())
    (tmp_path / "rows.avx2.json").unlink()
    table = list(processors.lines())
    assert table[0] == "| question | bar | zen4 |"
    cells = [line.strip("| ").split(" | ")[-1] for line in table[2:]]
    assert cells[:4] == [
        "0.700 to 0.800 ✓",
        "0.500 to 0.950 ✗ (1 of 2 above)",
        "1.200 ✗ (1 of 1 above)",
        "1.010 to 1.040 ✓",
    ]
    assert cells[4:] == ["not measured"] * 5 + [
        "2.500 ✓",
        "1.200 ✓",
        "not measured",
        "2.000 ✗ (1 of 1 above)",
    ]
