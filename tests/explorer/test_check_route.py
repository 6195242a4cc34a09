"""The route of the findings gives what `regard.web.check` gives."""

from dataclasses import asdict

from regard.analysis import diagnose
from regard.web.check import check


def test_the_findings_are_those_of_the_record(client, record):
    told = client.get("/api/records/r1/check")
    assert told.status_code == 200
    assert told.json() == asdict(check(record))
    assert told.json()["summary"] == diagnose(record).summary()
    assert client.get("/api/records/r9/check").status_code == 404
