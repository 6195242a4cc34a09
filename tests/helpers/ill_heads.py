"""Attention that is built to be ill, or only to look so: layers whose heads have the scores that they are given.

Knows scores, masks and values, and how a diagnosis of them is asked for; not what it looks at.
"""

import torch
from torch import nn

import regard as rg
from regard.analysis import diagnose_model


class Layer(nn.Module):
    """Heads with fixed score matrices, `(heads, most, most)`, of which a text of n tokens uses the first n × n."""

    def __init__(self, scores, mask=None, dim=8, pass_padding=True, sizes=None):
        super().__init__()
        self.scores, self.mask, self.dim, self.pass_padding = scores.float(), mask, dim, pass_padding
        heads = len(scores)
        self.value = nn.Linear(dim, heads * dim)
        self.out_proj = nn.Linear(heads * dim, dim, bias=False)
        # Of each head how much it says, (heads,) or at each token (heads, tokens).
        self.sizes = torch.ones(heads) if sizes is None else torch.as_tensor(sizes)

    def forward(self, x, attention_mask=None):
        batch, tokens, _ = x.shape
        heads = len(self.scores)
        value = self.value(x).view(batch, tokens, heads, self.dim).transpose(1, 2)
        value = value * self.sizes.view(heads, -1, 1)[:, :tokens]
        # With keys that are unit vectors, queries are rows of scores.
        query = self.scores[:, :tokens, :tokens].expand(batch, -1, -1, -1).contiguous()
        key = torch.eye(tokens).expand(batch, heads, -1, -1).contiguous()
        mask = self.mask
        if attention_mask is not None and self.pass_padding:
            real = rg.padding(attention_mask.sum(-1))
            mask = real if mask is None else mask & real
        output = rg.attend(query, key, value, mask=mask, scale=1.0)
        return self.out_proj(output.transpose(1, 2).flatten(2))


class Model(nn.Module):
    """Layers of such heads over embedded ids, each added to what was there."""

    def __init__(self, *layers, vocab=31):
        super().__init__()
        self.embed = nn.Embedding(vocab, layers[0].dim)
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(layers[0].dim, vocab)

    def forward(self, input_ids, attention_mask=None):
        x = self.embed(input_ids)
        for layer in self.layers:
            x = x + layer(x, attention_mask)
        return self.head(x)


def noise(heads, tokens, strength=1.0):
    """Scores of no pattern."""
    return strength * torch.randn(heads, tokens, tokens)


def on_key(tokens, key, strength=12.0):
    """All queries on one key."""
    scores = torch.zeros(1, tokens, tokens)
    scores[:, :, key] = strength
    return scores


def previous(tokens, strength=12.0):
    """Each query on the token before it, the first one on itself."""
    scores = torch.zeros(1, tokens, tokens)
    queries = torch.arange(tokens)
    scores[:, queries, (queries - 1).clamp(min=0)] = strength
    return scores


def own_token(tokens, strength=12.0):
    """Each query on itself."""
    return strength * torch.eye(tokens)[None]


def batches(lengths=(53, 47, 59), vocab=31, real=True):
    """A batch for each length, of one text; with its attention_mask."""
    result = []
    for length in lengths:
        ids = torch.randint(1, vocab, (1, length))
        result.append(
            {"input_ids": ids, "attention_mask": torch.ones_like(ids)} if real else {"input_ids": ids}
        )
    return result


def of(*layers, **given):
    """The diagnosis of a model with these layers."""
    return diagnose_model(Model(*layers), batches(), **given)


def found(diagnosis, name=None):
    """Findings as (rule, severity, layer's number, head)."""
    return [
        (f.name, f.severity, int(f.layer.split(".")[-1]) if f.layer else None, f.head)
        for f in diagnosis.findings
        if name is None or f.name == name
    ]


def found_names(diagnosis, name):
    """How many findings a rule has."""
    return sum(finding.name == name for finding in diagnosis.findings)
