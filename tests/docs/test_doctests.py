"""The examples in docstrings run and show what they say."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import regard

# Triton's kernels are another language than Python's, and `_native` is a library of C++.
LEFT_OUT = ("regard.engines.triton", "regard.engines.native._native", "regard.__main__")
MODULES = [
    module.name
    for module in pkgutil.walk_packages(regard.__path__, "regard.")
    if not module.name.startswith(LEFT_OUT)
]


class Finder(doctest.DocTestFinder):
    """Finds the examples of decorated functions too, whose globals are those of the decorator's module."""

    def _from_module(self, module, object):
        if inspect.isroutine(object) and hasattr(object, "__wrapped__"):
            return object.__module__ == module.__name__
        return super()._from_module(module, object)


@pytest.mark.parametrize("name", ["regard", *MODULES])
def test_the_examples_of_a_module_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    runner = doctest.DocTestRunner(verbose=False, optionflags=flags)
    module = importlib.import_module(name)
    for test in Finder().find(module, name):
        # Examples share no names: each begins with the module's own.
        runner.run(test)
    result = runner.summarize(verbose=False)
    assert result.failed == 0, (
        f"{result.failed} of {result.attempted} examples fail: see what was printed above"
    )


def test_an_example_that_is_wrong_is_found():
    def wrong():
        """Wrong.

        >>> 1 + 1
        3
        """

    (test,) = Finder().find(wrong, "wrong", globs={})
    assert doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None).failed == 1


def test_decorated_functions_are_looked_into():
    names = {
        test.name for test in Finder(exclude_empty=False).find(importlib.import_module("regard.attention"))
    }
    assert "regard.attention.observe" in names
