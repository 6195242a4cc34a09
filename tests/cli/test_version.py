"""Which version it is, in Python and on the command line."""

from importlib.metadata import version

import regard as rg


def test_the_version_is_that_of_the_package(regard):
    assert rg.__version__ == version("regard")
    assert regard("--version") == (0, f"regard {rg.__version__}\n", "")
