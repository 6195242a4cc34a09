"""What every test shares: no network, a fixed seed, a hypothesis profile, and a browser if there is one."""

import gc
import importlib
import importlib.util
import os
import shutil

os.environ.update(
    HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TOKENIZERS_PARALLELISM="false", MPLBACKEND="Agg"
)

# Triton decides when it is imported whether its own functions are interpreted, and much imports it: this does first.
if importlib.util.find_spec("triton"):
    os.environ["TRITON_INTERPRET"] = "1"
    importlib.import_module("triton.language")
    del os.environ["TRITON_INTERPRET"]

import pytest
import torch
from hypothesis import register_random, settings

CI = bool(os.environ.get("CI"))


class TorchRandom:
    """torch's generator in the words of `random.Random`, so that hypothesis seeds it for each example."""

    seed = staticmethod(torch.manual_seed)
    getstate = staticmethod(torch.get_rng_state)
    setstate = staticmethod(torch.set_rng_state)


TORCH_RANDOM = TorchRandom()  # hypothesis holds it by a weak reference
register_random(TORCH_RANDOM)

# In CI the examples are the same each time, so that a red run can be repeated; elsewhere they wander.
settings.register_profile("regard", deadline=None, max_examples=50, print_blob=True, derandomize=CI)
# Of the proof of the engines `make proof` draws ten to twenty times as much.
settings.register_profile("proof", settings.get_profile("regard"), max_examples=500, derandomize=False)
settings.load_profile("regard")


@pytest.fixture(scope="module", autouse=True)
def young_heap() -> None:
    """What is there before a module's tests is no longer searched for garbage, which takes most of a second."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """At the exit everything is collected again: libraries look there for what was not."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def seed() -> None:
    """Every test starts from the same random state."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def browser_path() -> str:
    """The path of a Chromium or Chrome; without one the test is skipped, in CI it fails."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        message = f"no browser found: needs one of {', '.join(names)} on the PATH"
        pytest.fail(message) if CI else pytest.skip(message)
    return found
