"""How good the embedded model is: held-out loss, the baselines it must beat, each head's induction score.

Knows rows of tokens and a causal language model; knows nothing of files or training.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel


@torch.no_grad()
def loss(model: PreTrainedModel, rows: Tensor, batch: int = 16) -> float:
    """Mean cross-entropy, in nats per token, of all of `rows` (count, length) but each row's first token."""
    model.eval()
    total = 0.0
    for part in rows.split(batch):
        logits = model(input_ids=part, use_cache=False).logits[:, :-1]
        total += F.cross_entropy(logits.flatten(0, 1).float(), part[:, 1:].flatten(), reduction="sum").item()
    return total / rows[:, 1:].numel()


def unigram(train: Tensor, vocabulary: int) -> Tensor:
    """Add-one probabilities of each token in a training stream, float64, shape (vocabulary,)."""
    counts = torch.bincount(train, minlength=vocabulary).double() + 1
    return counts / counts.sum()


def bigram(train: Tensor, vocabulary: int) -> Tensor:
    """Witten-Bell interpolated bigram probabilities, float64, shape (previous, next).

    P(b|a) = (c(ab) + T(a)·P(b)) / (c(a) + T(a)), with T(a) the number of different tokens seen after a.
    """
    pairs = torch.bincount(train[:-1] * vocabulary + train[1:], minlength=vocabulary**2)
    counts = pairs.view(vocabulary, vocabulary).double()
    # At least 1, so that after a token that was never seen P(b|a) is P(b) and not 0 / 0.
    kinds = (counts > 0).sum(1, keepdim=True).clamp(min=1)
    return (counts + kinds * unigram(train, vocabulary)) / (counts.sum(1, keepdim=True) + kinds)


def baselines(train: Tensor, rows: Tensor, vocabulary: int) -> dict[str, float]:
    """Nats per token of the unigram and the bigram counted on `train`, on the tokens that `loss` looks at."""
    previous, target = rows[:, :-1].flatten(), rows[:, 1:].flatten()
    return {
        "uniform": math.log(vocabulary),
        "unigram": -unigram(train, vocabulary)[target].log().mean().item(),
        "bigram": -bigram(train, vocabulary)[previous, target].log().mean().item(),
    }


@torch.no_grad()
def induction(model: PreTrainedModel, seed: int, sequences: int = 64, length: int = 96) -> Tensor:
    """Induction score of every head, shape (layers, heads), from the eager attention weights.

    Each sequence is the beginning token, then `length` uniformly random tokens, then the same again. The
    score is the mean weight from each token of the second copy to the token after its earlier occurrence
    (Olsson et al. 2022, "In-context Learning and Induction Heads").
    """
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    special = model.config.bos_token_id
    span = torch.randint(special + 1, model.config.vocab_size, (sequences, length), generator=generator)
    ids = torch.cat([torch.full((sequences, 1), special), span, span], dim=1)
    # The other implementations return no weights.
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    total: Tensor | float = 0.0
    for part in ids.split(16):
        layers = model(input_ids=part, use_cache=False, output_attentions=True).attentions
        # Query 1 + length + i is token i of the second copy; key 2 + i follows token i in the first: one diagonal.
        weights = torch.stack(layers).float()[..., 1 + length :, 2 : 2 + length]
        total = total + weights.diagonal(dim1=-2, dim2=-1).mean(-1).sum(1)
    model.set_attn_implementation(before)
    assert isinstance(total, Tensor)
    return total / sequences


def best_head(scores: Tensor) -> tuple[int, int, float]:
    """(layer, head, score) of the largest of `scores` (layers, heads)."""
    layer, head = divmod(int(scores.argmax()), scores.shape[1])
    return layer, head, scores[layer, head].item()
