"""What one sees in the playground, in a few plain sentences, from the numbers that are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp

from torch import Tensor

from regard.analysis.roles import MIXED
from regard.statistics.roles import ROLES
from regard.web.describe import RoleDescription
from regard.web.playground.state import PlaygroundState

# Shares of the most that entropy could be.
EVEN, SHARP = 0.95, 0.4
WITHOUT_TRAINING = {
    "small": "Weights of the size 0.02 make scores close to 0, so that the softmax begins almost even.",
    "zero": "The last projection is 0: the layer adds nothing yet, though its weights are those of Xavier's.",
    "matched": "Queries and keys have one projection, so that a token scores high with tokens like itself.",
}
KINDS = {
    "cross": "Every token attends to a second row of tokens, the memory.",
    "linear": "There is no softmax and no temperature: weights are products of features, divided by their sum.",
    "low rank": "The keys are slots, each a mixture of all tokens, so that cost grows with the number of slots.",
    "additive": "A score is the output of a small network that reads a query and a key, and no product.",
}


def sentences(
    state: PlaygroundState, arrays: Mapping[str, Tensor], roles: Sequence[RoleDescription]
) -> list[str]:
    """What there is to see: how spread out the weights are, what heads do, what the mask and the temperature change.

    Args:
        arrays: `entropy` `(heads, queries)`, `bound` `(queries,)` and `allowed` `(queries, keys)`.
        roles: one for each head.
    """
    lines = [_spread(arrays)]
    # Where no query has a choice, whatever it does is no pattern.
    if bool((arrays["bound"] > 0).any()):
        lines.append(_roles(roles))
    lines.append(KINDS.get(state.kind, ""))
    # What is left out is as telling as what is looked at.
    share = float(arrays["allowed"].double().mean())
    if share < 1:
        lines.append(f"The mask allows {share:.0%} of the pairs of a query and a key.")
    if state.temperature != 1 and state.kind != "linear":
        sharper = "flatter"
        if state.temperature < 1:
            sharper = "sharper"
        lines.append(
            f"Scores are divided by the temperature {state.temperature:g}, so weights are {sharper}."
        )
    lines.append(WITHOUT_TRAINING.get(state.init, ""))
    return [sentence for sentence in lines if sentence]


def _spread(arrays: Mapping[str, Tensor]) -> str:
    """The entropy against what it could be."""
    entropy, bound = arrays["entropy"].double(), arrays["bound"].double()
    free = bound > 0
    if not bool(free.any()):
        return "No query has a choice: each may attend to one key, or none, and the entropy is 0."
    mean, most = float(entropy[:, free].mean()), float(bound[free].mean())
    # Heads may differ where their mean says nothing.
    by_head = entropy[:, free].mean(-1)
    if mean >= EVEN * most:
        saying = "the weights are almost even"
    elif mean <= SHARP * most:
        saying = f"a query looks at {exp(mean):.1f} tokens or so"
    else:
        saying = f"a query looks at some tokens more than at others, at {exp(mean):.0f} or so"
    return (
        f"The mean entropy is {mean:.2f} of at most {most:.2f} nats: {saying} "
        f"(by head {float(by_head.min()):.2f} to {float(by_head.max()):.2f})."
    )


def _roles(roles: Sequence[RoleDescription]) -> str:
    """Which heads do what."""
    heads: dict[str, list[int]] = {}
    for head, role in enumerate(roles):
        if role.role != MIXED:
            heads.setdefault(role.role, []).append(head)
    if not heads:
        return "No head has a pattern of its own: without training only the tokens themselves can make one."
    parts = []
    for name, members in heads.items():
        if len(members) == len(roles) and len(roles) > 1:
            who = "Every head"
        elif len(members) == 1:
            who = f"Head {members[0]}"
        else:
            who = f"Heads {', '.join(map(str, members[:-1]))} and {members[-1]}"
        verb = ROLES[name].meaning
        if who.startswith("Heads"):
            verb = _plural(verb)
        parts.append(f"{who} {verb} ({name}).")
    return " ".join(parts)


def _plural(meaning: str) -> str:
    """The meaning of a role, said of several heads."""
    first, _, rest = meaning.partition(" ")
    return f"{first.removesuffix('s')} {rest}".replace(" its ", " their ")
