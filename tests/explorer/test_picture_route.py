"""The picture of a record: described, and handed over pixel by pixel."""

import numpy as np
import pytest

from regard.record import Record, attach_picture
from regard.web.arrays import unpack
from regard.web.tiles import RecordTiles

PIXELS = np.random.default_rng(2).integers(0, 256, (20, 24, 3), dtype=np.uint8)


@pytest.fixture
def pictured(opened, record):
    """A record whose queries and keys are 5 × 6 patches behind two other tokens."""
    one = Record(record.calls[:1], info={"model": "Seer"})
    attach_picture(one, PIXELS, (5, 6), start=2)
    return opened.add(RecordTiles(one)).id


def test_a_picture_is_told_and_handed_over(client, pictured):
    told = client.get(f"/api/records/{pictured}").json()
    assert told["picture"] == {"rows": 5, "columns": 6, "start": 2, "text": "tokens", "words": []}
    assert told["info"] == {"model": "Seer"}, "the pixels have a way of their own"
    arrays, _ = unpack(client.get(f"/api/records/{pictured}/picture").content)
    assert np.array_equal(arrays["pixels"], PIXELS)


def test_a_record_without_a_picture_says_so(client, opened, record, pictured):
    assert client.get("/api/records/r1").json()["picture"] is None
    answer = client.get("/api/records/r1/picture")
    assert answer.status_code == 400 and "attach_picture" in answer.json()["detail"]
    opened[pictured].record.info["picture"]["png"] = "AAAA"
    answer = client.get(f"/api/records/{pictured}/picture")
    assert answer.status_code == 400 and "PNG" in answer.json()["detail"]
