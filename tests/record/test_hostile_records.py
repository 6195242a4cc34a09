"""A folder that is no record, or one that is damaged, too new or hostile, is said to be so: which file, and why."""

import hashlib
import json
import os

import pytest
import safetensors.torch
import torch

from helpers.calls import a_record
from regard.errors import RecordError
from regard.files import sealing
from regard.record import folder as storage
from regard.record import load


@pytest.fixture
def saved(tmp_path):
    a_record().save(tmp_path)
    return tmp_path


def the(folder, kind):
    return next(folder.glob(f"{kind}-*"))


def refused(folder, message):
    with pytest.raises(RecordError, match=message):
        load(folder)


def edit(folder, change):
    """Change `record.json`, and seal it anew, as somebody would who means harm."""
    body = json.loads((folder / "record.json").read_text())
    change(body)
    (folder / "record.json").write_bytes(sealing.document(storage.FORM, body | {"sha256": sealing.ZEROS}))


def sealed_anew(content):
    """The bytes of a document with the digest that fits them."""
    start, end = sealing.HEAD.match(content).span("digest")
    blank = content[:start] + sealing.ZEROS.encode() + content[end:]
    return blank[:start] + hashlib.sha256(blank).hexdigest().encode() + blank[end:]


def reseal(folder, tensors):
    """Replace the tensors, with size and digest to match."""
    path = the(folder, "statistics")
    path.write_bytes(tensors if isinstance(tensors, bytes) else safetensors.torch.save(tensors))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    edit(folder, lambda body: body["files"]["statistics"].update(bytes=path.stat().st_size, sha256=digest))


def test_missing_files_are_said(saved):
    refused(saved / "nowhere", "nowhere: there is no such folder")
    refused(saved / "record.json", "record.json: a record is a folder, and this is a file")
    the(saved, "heads").unlink()
    refused(saved, r"heads-\w+.parquet: is missing")
    the(saved, "statistics").rename(saved / "away")
    refused(saved, r"heads-\w+.parquet: is missing")
    (saved / "record.json").unlink()
    refused(saved, "record.json: is missing")


@pytest.mark.parametrize("kind", ["statistics", "heads"])
def test_damaged_data_is_said(saved, kind):
    path = the(saved, kind)
    content = path.read_bytes()
    path.write_bytes(content[:-7])
    refused(
        saved,
        rf"{path.name}: is cut short or altered: must have {len(content)} bytes, got {len(content) - 7}",
    )
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    refused(saved, rf"{path.name}: is altered: must have SHA-256 '\w+…, got \w+…")
    path.write_bytes(content)
    load(saved)


def test_damaged_json_is_said(saved):
    record = saved / "record.json"
    text = record.read_text()
    cases = {
        text[:-30]: "record.json: is cut short or altered: must have SHA-256",
        text.replace('"seed": 0', '"seed": 1'): "record.json: is cut short or altered",
        text.replace('"seed": 0', '"seed":  0'): "record.json: is cut short or altered",
        text + " ": "record.json: is cut short or altered",
        "\ufeff" + text: "record.json: is damaged, no valid JSON",
        " " + text: "record.json: is altered: must begin with its format, its version and its seal",
        "": "record.json: is damaged, no valid JSON",
        "\udcff": "record.json: is damaged, no valid JSON",
        "[" * 100_000: "record.json: is damaged: it is nested too deep",
        "[" * 50 + "]" * 50: "record.json: is no record of Regard",
        "[]": "record.json: is no record of Regard",
        text.replace("regard-record", "another"): "record.json: is no record of Regard",
        text.replace('"version": 2', '"version": 3'): "has format version 3, this Regard reads 2: update it",
        text.replace(
            '"version": 2', '"version": 1'
        ): "has format version 1, this Regard reads 2: make it anew",
        text.replace('"version": 2', '"version": "2"'): "'version' must be of type int, got '2'",
    }
    for damaged, message in cases.items():
        record.write_bytes(damaged.encode(errors="surrogateescape"))
        refused(saved, message)


def test_hostile_json_with_a_seal_is_said(saved):
    record = saved / "record.json"
    text = record.read_bytes()
    offset, seed = b'"offset": 4', b'"seed": 0'
    cases = {
        text.replace(offset, b'"offset": NaN', 1): "is damaged, no valid JSON: NaN is no number",
        text.replace(offset, b'"offset": -Infinity', 1): "is damaged, no valid JSON: -Infinity is no number",
        text.replace(offset, b'"offset": 1e999', 1): "1e999 is no number that a computer holds",
        text.replace(offset, b'"offset": ' + b"4" * 5000, 1): "is damaged, no valid JSON: Exceeds the limit",
        text.replace(offset, b'"offset": 4, "offset": 5', 1): "no valid JSON: 'offset' is there twice",
        text.replace(seed, seed + b', "seed": 0'): "no valid JSON: 'seed' is there twice",
        text.replace(seed, b'"seed": "\xff"'): "is damaged, no valid JSON: 'utf-8' codec can't decode",
        text.replace(seed, b'"seed": ' + b"[" * 50 + b"]" * 50): "is nested deeper than 32 levels",
        text.replace(
            seed, b'"seed": ' + b"[" * 100_000 + b"]" * 100_000
        ): "is damaged: it is nested too deep",
        text.replace(seed, b'"version": 3, ' + seed): None,
        text.replace(b'"packages"', b'"version": 3, "packages"'): "no valid JSON: 'version' is there twice",
        text + b"{}": "is damaged, no valid JSON: Extra data",
    }
    for hostile, message in cases.items():
        record.write_bytes(sealed_anew(hostile))
        if message is None:
            load(saved)  # within `info` any name may be
        else:
            refused(saved, message)


def test_a_record_that_is_too_large_is_said(saved, monkeypatch):
    monkeypatch.setattr(sealing, "MAX_BYTES", 100)
    refused(saved, r"record.json: must be at most 100 bytes, got \d+")
    with pytest.raises(RecordError, match="must be at most 100 bytes"):
        a_record().save(saved)


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "/etc/passwd",
        "statistics-0123456789abcdef.safetensors/x",
        "statistics-\n",
        "",
        "a" * 9999,
    ],
)
def test_hostile_names_are_refused(saved, name):
    edit(saved, lambda body: body["files"]["statistics"].update(name=name))
    refused(
        saved, r"files: the name of 'statistics' must be like statistics-\[0-9a-f\]\{16\}\\.safetensors, got"
    )


def test_links_are_refused(saved, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "data"
    for path in (the(saved, "statistics"), saved / "record.json"):
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
        refused(saved, f"{path.name}: must be a plain file, not a link, a folder or a device")
        path.unlink()
        elsewhere.rename(path)
    path.unlink()
    path.mkdir()
    refused(saved, "record.json: must be a plain file")
    path.rmdir()
    os.mkfifo(path)  # would never end
    refused(saved, "record.json: must be a plain file")


def test_a_record_is_not_saved_through_a_link(saved, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "data"
    record = saved / "record.json"
    elsewhere.write_bytes(record.read_bytes())
    record.unlink()
    record.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    with pytest.raises(RecordError, match="is no record of Regard, so it is not replaced"):
        a_record(1).save(saved)
    assert record.is_symlink() and elsewhere.read_bytes() == before


def test_hostile_tensors_are_refused(saved):
    tensors = safetensors.torch.load(the(saved, "statistics").read_bytes())
    header = json.dumps(
        {"0.lse": {"dtype": "F32", "shape": [1 << 40, 1 << 20], "data_offsets": [0, 4]}}
    ).encode()
    strange = json.dumps({"0.lse": {"dtype": "Q7", "shape": [1], "data_offsets": [0, 4]}}).encode()
    cases = {
        "no safetensors file that can be read": b"nonsense",
        "no safetensors file that can be read: ": len(header).to_bytes(8, "little") + header + b"1234",
        "no safetensors file that can be read:": len(strange).to_bytes(8, "little") + strange + b"1234",
        r"calls\[0\]: 'lse' must be \(2, 6, 3\), got \(2, 6, 2\)": tensors | {"0.lse": torch.rand(2, 6, 2)},
        r"calls\[0\]: 'lse' must be torch.float32 or torch.float64, got torch.bool": tensors
        | {"0.lse": torch.ones(2, 6, 3) > 0},
        r"calls\[0\]: 'allowed' must be torch.int64": tensors | {"0.allowed": torch.ones(2, 6, 3)},
        r"calls\[1\]: 'key' must be \(2, 3, 7, 5\)": tensors | {"1.key": torch.ones(2, 6, 7, 5)},
        r"calls\[1\]: 'top.weights' must be \(2, 6, 3, 3\)": tensors
        | {"1.top.weights": torch.ones(2, 6, 3, 2)},
        r"calls\[1\]: 'top.weights' must be \(2, 6, 3, 0\)": tensors | {"1.top.keys": torch.tensor(1)},
        r"calls\[0\].map: total and peak must be": tensors | {"0.map.total": torch.ones(2, 6, 9, 9)},
        r"calls\[0\].map: must have the sizes of its call": tensors | {"0.map.total": torch.ones(1, 1, 2, 4)},
        r"calls\[0\].map: must be float32 or float64": tensors
        | {"0.map.peak": torch.ones(2, 6, 2, 4).bfloat16()},
        r"calls\[0\]: holds what no call has: x, y": tensors | {"0.x": torch.ones(1), "0.y": torch.ones(1)},
        "tensors of calls that it does not list: 2": tensors | {"2.lse": torch.ones(1)},
        "tensors of calls that it does not list: lse": tensors | {"lse": torch.ones(1)},
        r"calls\[0\]: the tensor 'groups.0' is missing": {
            k: v for k, v in tensors.items() if k != "0.groups.0"
        },
        r"calls\[0\].map: the tensors total, rows are missing": {
            k: v for k, v in tensors.items() if k not in ("0.map.total", "0.map.rows")
        },
    }
    for message, wrong in cases.items():
        reseal(saved, wrong)
        refused(saved, message)
    reseal(saved, tensors)
    load(saved)


def test_hostile_fields_are_refused(saved):
    content = (saved / "record.json").read_bytes()

    def case(message, change):
        (saved / "record.json").write_bytes(content)
        edit(saved, change)
        refused(saved, message)

    def call(**values):
        return lambda body: body["calls"][1].update(values)

    def sizes(**values):
        return lambda body: body["calls"][1]["sizes"].update(values)

    def spec(**values):
        return lambda body: body["calls"][1]["parts"][0]["spec"].update(values)

    case("'calls' is missing", lambda body: body.pop("calls"))
    case("'files' must be of type dict, got 3", lambda body: body.update(files=3))
    case("files: 'heads' is missing", lambda body: body["files"].pop("heads"))
    case("files: 'bytes' must be of type int, got '9'", lambda body: body["files"]["heads"].update(bytes="9"))
    case("'tokens' must be lists of strings", lambda body: body.update(tokens=[["a", 3]]))
    case("'tokens' must be of type list or null, got 'a'", lambda body: body.update(tokens="a"))
    case(r"aliases\['x'\] must name a stored tensor, got 'y'", lambda body: body.update(aliases={"x": "y"}))
    case(r"calls\[1\]: 'layer' is missing", lambda body: body["calls"][1].pop("layer"))
    case(r"calls\[2\]: 'layer' is missing", lambda body: body["calls"].append(7))
    case(r"calls\[1\]: 'kind' must be one of self, cross, got 'both'", call(kind="both"))
    case(r"calls\[1\]: 'steps' must be of type int, got True", call(steps=True))
    case(r"calls\[1\]: 'steps' must be from 1 to", call(steps=0))
    case(r"calls\[1\]: 'groups' must be different strings", call(groups=["a", "a"]))
    case(
        r"calls\[1\].parameters: 'first' must be of type int or float or bool", call(parameters={"first": []})
    )
    case(r"calls\[1\]: 'map' must be of type dict or null", call(map=[]))
    case(
        r"calls\[1\].map: cell must be a power of two, got 3",
        lambda body: body["calls"][1]["map"].update(cell=3),
    )
    case(
        r"calls\[1\].map: must have the sizes of its call",
        lambda body: body["calls"][1]["map"].update(keys=1 << 39),
    )
    case(r"calls\[1\].sizes: 'heads' must be from 0 to 65536", sizes(heads=1 << 50))
    case(r"calls\[1\].sizes: heads must be a multiple of kv_heads, got 6 and 4", sizes(kv_heads=4))
    case(r"calls\[1\].sizes: heads must be a multiple of kv_heads, got 6 and 0", sizes(kv_heads=0))
    case(r"calls\[1\]: 'query' must be \(2, 6, 1099511627776, 5\)", sizes(queries=1 << 40))
    case(r"calls\[1\]: 'key' must be \(2, 3, 8, 5\), got \(2, 3, 7, 5\)", sizes(keys=8))
    case(r"calls\[1\].parts\[0\]: 'scale' must be of type float", spec(scale="1"))
    case(r"calls\[1\].parts\[0\]: softcap must be positive, got -1.0", spec(softcap=-1.0))
    case(r"calls\[1\].parts\[0\]: .*each with its tensor, got None and True", spec(sink_logit=True))
    case(
        "'bias' must be null or one of dense, .*, each with its tensor, got 'pickle' and False",
        spec(bias="pickle"),
    )
    case(
        "'bias' must be null or one of dense, .*, each with its tensor, got 'alibi' and False",
        spec(bias="alibi"),
    )
    case(r"parts\[0\]: a serialized mask must be one of and, .*, got None", spec(mask={}))
    case(r"parts\[0\]: a serialized mask must be one of and, .*, got 'os'", spec(mask={"kind": "os"}))
    case(
        r"parts\[0\]: a serialized prefix mask has the wrong fields", spec(mask={"kind": "prefix", "size": 3})
    )
    case(r"parts\[0\]: .*the tensor 'mask.0'", spec(mask={"kind": "prefix", "length": {"tensor": "mask.0"}}))
    case(r"parts\[0\]: ", spec(mask={"kind": "dense", "bits": "x", "keys": 3, "offset": 0}))
    case(r"parts\[0\]: ", spec(mask={"kind": "and", "masks": [3, {"kind": "causal"}]}))
    case(r"parts\[0\]: ", spec(mask={"kind": "not", "mask": "x"}))
    case(r"parts\[0\]: .*real tokens must end", spec(mask={"kind": "padding", "lengths": 9, "start": 0}))
    case(r"calls\[1\].parts\[0\]: 'queries' is missing", call(parts=[4]))
    case(r"parts must have 3 queries together", lambda body: body["calls"][1]["parts"][0].update(queries=2))
    case(
        r"parts\[0\]: 'keys' must be from 0 to 7, got 8",
        lambda body: body["calls"][1]["parts"][0].update(keys=8),
    )
