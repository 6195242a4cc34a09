"""What the tests of the native engine share: every build in turn, and the number of threads put back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from regard.engines import native

BUILDS = [name for name, (_, runs) in native.builds().items() if runs]
NOT_BUILT = pytest.mark.skip(reason="the native engine was not built: it needs a C++ compiler")


@pytest.fixture(params=BUILDS or [pytest.param("none", marks=NOT_BUILT)])
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A test that uses it runs once for each build."""
    monkeypatch.setenv("REGARD_CPU", request.param)
    return request.param


@pytest.fixture
def threads() -> Iterator[None]:
    """Puts the number of threads back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
