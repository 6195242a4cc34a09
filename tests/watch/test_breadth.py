"""The quickest types of `make breadth`, every mechanism among them: each call, compared with an oracle."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from breadth import hf, libraries
from breadth.modes import Subject, examine

# Types that are exact, by what makes their attention.
EXACT = (
    # scaled dot products with grouped heads, windows, softcaps, norms, latent heads
    "llama", "gemma", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "glm", "glm4", "glm4_moe_lite", "exaone4",
    "cohere", "apertus", "granitemoe", "flex_olmo", "ernie4_5_moe", "fuyu", "eurobert", "esm", "esmc", "gpt_bigcode",
    "gpt_neox", "gpt2", "distilbert", "albert", "electra", "bart", "t5", "dia_encoder", "audio-spectrogram-transformer",
    "hubert", "dinov2", "dinov3_vit", "deit", "beit", "dpt", "eomt", "glm4v_vision", "clip", "blip_2_qformer",
    "decision_transformer", "imagegpt", "layoutlm",
    # weights that the model makes itself
    "deberta", "deberta-v2", "funnel", "flaubert", "fsmt", "falcon", "gpt_neo", "codegen", "git", "glpn", "layoutlmv3",
    "canine", "ibert", "xlnet", "flava_image_model", "convbert", "groupvit", "doge",
    # weights whose columns multiply values in pieces, or in bands; exponentials less their logsumexp
    "pegasus_x", "longformer", "reformer",
    # keys that an indexer chooses
    "deepseek_v32", "axk2",
    # beside layers without attention
    "falcon_h1",
)  # fmt: skip
OTHERS = (
    "x-transformers/decoder",
    "x-transformers/alibi",
    "x-transformers/gate_values",
    "x-transformers/memory_keys",
    "x-transformers/talking_heads",
    "x-transformers/learned_sinks",
)
NOTHING = ("fnet", "poolformer", "swiftformer")  # which have no attention weights


@pytest.mark.parametrize("name", EXACT)
def test_every_call_is_in_the_record_with_its_numbers(name: str) -> None:
    found = examine(hf.subject(name, generates=False), "eval")
    assert found["verdict"] == "exact", found["reason"]
    assert found["calls"] == found["true_calls"] >= 1


@pytest.mark.parametrize("name", OTHERS)
def test_the_same_of_other_libraries(name: str) -> None:
    library, _, own = name.partition("/")
    found = examine(libraries.subject(library, own), "eval")
    assert found["verdict"] == "exact", found["reason"]
    assert found["calls"] == found["true_calls"] >= 1


@pytest.mark.parametrize("name", ("deepseek_v32", "axk2", "gemma3n_text"))
def test_indexers_and_streams_are_not_named_as_hidden_attention(name: str) -> None:
    found = examine(hf.subject(name, generates=False), "eval")
    assert found["verdict"] == "exact" and not found["unseen"]


@pytest.mark.parametrize("name", NOTHING)
def test_models_without_weights_say_so(name: str) -> None:
    found = examine(hf.subject(name, generates=False), "eval")
    assert found["verdict"] == "no weights" and "no attention call was seen" in found["reason"]


@pytest.mark.parametrize("name", ("bert", "gpt2", "bart", "deberta"))
def test_training_with_dropout_is_exact(name: str) -> None:
    found = examine(hf.subject(name, generates=False), "train")
    assert found["verdict"] == "exact", found["reason"]


@pytest.mark.parametrize("name", ("llama", "gemma2", "t5", "xlnet", "deepseek_v4", "inkling2_text"))
def test_generation_step_by_step_is_exact(name: str) -> None:
    found = examine(hf.subject(name), "generate")
    assert found["verdict"] == "exact", found["reason"]


class Heads(nn.Module):
    """Query, key and value of four heads of 8, and their scores."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.num_heads = 4
        self.qkv, self.drop = nn.Linear(32, 96), nn.Dropout(0.1)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        query, key, value = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        return query @ key.mT, value


class GatedPositionalAttention(Heads):
    """As ConViT: a gate for each head between what is there and where it is, made 1 in all again."""

    def __init__(self) -> None:
        super().__init__()
        self.where, self.gate = nn.Linear(3, 4), nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        scores, value = self.split(x)
        far = torch.arange(x.shape[1])[None] - torch.arange(x.shape[1])[:, None]
        where = self.where(torch.stack((far, far.abs(), far**2), -1).float() / x.shape[1]).permute(2, 0, 1)
        gate = self.gate.sigmoid().view(1, -1, 1, 1)
        weights = (1 - gate) * scores.softmax(-1) + gate * where.softmax(-1)
        return self.drop(weights / weights.sum(-1, keepdim=True)) @ value


class TalkingHeadsAttention(Heads):
    """As CaiT: the heads are mixed before the softmax and after it."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        scores, value = self.split(x)
        weights = self.before(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1)
        return self.drop(self.after(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)) @ value


class ClassAttention(Heads):
    """As CaiT's last layers: the first token alone looks at all of them."""

    def forward(self, x: Tensor) -> Tensor:
        scores, value = self.split(x)
        return self.drop(scores[:, :, :1].softmax(-1)) @ value


@pytest.mark.parametrize("mode", ("eval", "train"))
@pytest.mark.parametrize("kind", (GatedPositionalAttention, TalkingHeadsAttention, ClassAttention))
def test_weights_of_image_models_are_exact(kind: type[nn.Module], mode: str) -> None:
    image = torch.randn(2, 9, 32)
    found = examine(Subject(kind.__name__, lambda _: kind(), lambda model: model(image)), mode)
    assert found["verdict"] == "exact", found["reason"]
    assert found["calls"] == found["true_calls"] == 1 and not found["unseen"]
