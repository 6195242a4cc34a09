"""Every test of watching checks that nothing stays behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers.modeling_utils
from torch import nn
from torch.nn.attention import flex_attention as flex
from torch.utils import checkpoint


def traces() -> dict[str, Any]:
    """Everything that a watch touches."""
    modeling, module, call = transformers.modeling_utils, torch.nn.modules.module, flex.flex_attention
    return {
        "has_torch_function": torch.overrides.has_torch_function,
        "modes": torch.overrides._get_current_function_mode_stack(),
        "call": nn.Module.__call__,
        "interface": set(vars(modeling.AttentionInterface)),
        "get_interface": modeling.AttentionInterface.get_interface,
        "compiled call": modeling.PreTrainedModel.get_compiled_call,
        "flex": (call.__code__, call.__defaults__, call.__kwdefaults__),
        "checkpoint": (checkpoint.CheckpointFunction, checkpoint._checkpoint_without_reentrant_generator),
        "flex globals": {name for name in vars(flex) if name.startswith("_regard")},
        "hooks": (dict(module._global_forward_hooks), dict(module._global_forward_pre_hooks)),
    }


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = traces()
    yield
    assert traces() == before
