"""The embedded model: where its files lie and the text it is shown with. Loads nothing itself.

The folder is an ordinary Hugging Face model; `CARD.md` in it says how it was trained and what was measured.
"""

from pathlib import Path

TEXT = '''\
def count_words(text):
    """Count how often each word occurs in the text."""
    counts = {}
    for word in text.split():
        counts[word] = counts.get(word, 0) + 1
    return counts
'''
"""The default text: names are defined and used again, so heads that look back have something to find."""


SEALED = ("card.json", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
"""The files that the folder's `seal.json` lists."""


def folder() -> Path:
    """The folder of the embedded model, for `from_pretrained`; its card lies beside the weights."""
    return Path(__file__).parent
