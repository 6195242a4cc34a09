"""A task's card as a page to read: what it was trained on and how, what was measured, what its attention shows.

Knows cards as `Task.run` writes them; the words about data are those of the documentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regard.tasks.common.task import Card

NAMED = (
    "max_steps",
    "batch_size",
    "learning_rate",
    "lr_scheduler_type",
    "warmup_ratio",
    "weight_decay",
    "precision",
    "seed",
)
"""The settings of the recipe that the page names; `card.json` has all."""
SHOWN = {
    "attention.png": "What attention did on an example that `regard look` shows.",
    "history.png": "How each head came to be: its entropy along the training.",
    "bottleneck.png": "Accuracy against length; where there are several seeds, the tint is their range.",
}


def text(task: str, about: str, cards: Sequence[Card], pictures: Sequence[str]) -> str:
    """The page of a task, in Markdown.

    Args:
        task: its name. about: what the data are, in Markdown. cards: of each trained model.
        pictures: file names beside the page, of `SHOWN`.
    """
    parts = [f"# {task}", about.strip()]
    parts += [f"## {card['model']}\n\n{_of_model(card)}" for card in cards]
    parts += [f"![{SHOWN[name]}]({name})\n\n{SHOWN[name]}" for name in pictures]
    commands = "\n".join(f"{card['command']}" for card in cards)
    parts.append(
        f"## Again\n\n```\n{commands}\nregard train {task} --evaluate   # these scores, from the weights kept here\n```"
    )
    return "\n\n".join(parts) + "\n"


def _of_model(card: Card) -> str:
    training = card["training"]
    recipe = training["recipe"]
    settings = ", ".join(f"{name} {recipe[name]}" for name in NAMED)
    duration = f"{training['seconds']:,.0f} s"
    # Cards of resumed runs that were written before `seconds` covered the whole training.
    if training.get("resumed"):
        duration += f" from step {training['resumed']:,} on"
    rows = [
        ("parameters", f"{card['parameters']:,}"),
        ("recipe", settings),
        ("trained in", f"{duration}, {training['threads']} thread(s), {training['machine']}"),
        ("held-out examples", f"{card['held_out_examples']:,}"),
    ]
    body = "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows)
    scores = "\n".join(
        f"| {name} | {value} | {interval} |" for name, value, interval in lines(card["scores"])
    )
    return f"{body}\n\n| measured on held-out data | | 95 % interval |\n|---|---|---|\n{scores}"


def lines(scores: Mapping[str, Any], before: str = "") -> list[tuple[str, str, str]]:
    """Lines (name, value, interval) of a card's scores; names of inner dicts follow those of the outer ones.

    Args:
        scores: numbers, lists of numbers, dicts of a `score` with its `interval`, and dicts of all these, by name.
        before: what each name begins with.

    >>> lines({"exact": {"score": 0.5, "interval": [0.4, 0.6]}, "heads": {"layer_0": [0.25, 1.0]}})
    [('exact', '0.500', '0.400 – 0.600'), ('heads layer 0', '0.25 1.00', '')]
    """
    # A dict with a score is one line, and so ends the recursion.
    if "score" in scores:
        where = " ".join(f"{key} {scores[key]}" for key in ("layer", "head") if key in scores)
        if where:
            before += f" ({where})"
        interval = " – ".join(f"{bound:.3f}" for bound in scores.get("interval", ()))
        return [(before, f"{scores['score']:.3f}", interval)]
    rows: list[tuple[str, str, str]] = []
    for name, value in scores.items():
        full = f"{before} {name}".strip().replace("_", " ")
        match value:
            case dict():
                rows += lines(value, full)
            case list():
                rows.append((full, " ".join(f"{number:.2f}" for number in value), ""))
            case float():
                rows.append((full, f"{value:.3f}", ""))
            case _:
                rows.append((full, str(value), ""))
    return rows
