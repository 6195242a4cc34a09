"""Loads a Hugging Face model and its tokenizer from a folder or by name, or the embedded one; runs it once on a text.

Knows decoder, encoder and encoder–decoder models; it does not know who watches.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard import embedded
from regard.embedded import llama
from regard.embedded.tokenizer import Tokenizer
from regard.errors import ModelError, require
from regard.files import sealing

# Tokens an encoder–decoder writes at most, so that its decoder has something to attend from.
REPLY = 48


@dataclass(frozen=True)
class Reader:
    """A model that reads text, ready to run.

    Attributes:
        name: what the user called it.
        limit: the most tokens it takes, or None where it does not say.
    """

    name: str
    model: Any
    tokenizer: Any
    limit: int | None

    @property
    def answers(self) -> bool:
        """Whether it is an encoder–decoder, which reads one text and writes another."""
        return bool(getattr(self.model.config, "is_encoder_decoder", False))

    @property
    def writes(self) -> bool:
        """Whether it predicts the next token, so that each attends only to what is before it."""
        return _writes(self.model.config)

    @property
    def predicts(self) -> bool:
        """Whether its logits are of the next token, and not of the token that stands there."""
        return self.writes or self.answers

    @property
    def layers(self) -> int:
        """Attention layers, for a progress bar; 0 where the configuration does not say."""
        config = self.model.config
        count = int(getattr(config, "num_hidden_layers", 0) or 0)
        if self.answers:
            return count + 2 * int(getattr(config, "num_decoder_layers", count) or 0)
        return count

    def encode(self, text: str) -> Any:
        """Token ids of a text, `(1, tokens)`.

        Raises:
            ModelError: no text, or more than the model takes.
        """
        encoded = self.tokenizer(text, return_tensors="pt", verbose=False)
        count = encoded["input_ids"].shape[1]
        if not text or count == 0:
            raise ModelError("the text must have at least one token, and it has none: is it empty?")
        if self.limit is not None and count > self.limit:
            raise ModelError(
                f"the text must have at most {self.limit} tokens, which is all that {self.name} takes, and it has "
                f"{count}: shorten it, or take a model with a longer context"
            )
        return encoded

    def inputs(self, encoded: Any) -> dict[str, Any]:
        """What the forward pass takes; an encoder–decoder writes its reply first, so that its decoder can be seen."""
        # A tokenizer may give token types, which not every forward pass takes.
        inputs = {
            k: v.to(self.model.device) for k, v in encoded.items() if k in ("input_ids", "attention_mask")
        }
        if self.answers:
            with torch.inference_mode():
                reply = self.model.generate(**inputs, max_new_tokens=REPLY, do_sample=False, num_beams=1)
            inputs["decoder_input_ids"] = reply
        return inputs

    def run(self, inputs: dict[str, Any]) -> Any:
        """What one forward pass gives."""
        with torch.inference_mode():
            return self.model(**inputs)

    def piece(self, token: int) -> str:
        """One token as the text it stands for."""
        return self.tokens(torch.tensor([token]))[0]

    def tokens(self, ids: torch.Tensor) -> list[str]:
        """Each token as the text it stands for, special ones by their names."""
        # Decoding drops special tokens, and a picture without them would be a token short.
        special = set(self.tokenizer.all_special_ids)
        pieces = self.tokenizer.convert_ids_to_tokens(ids.tolist())
        return [p if i in special else self._piece(i, p) for i, p in zip(ids.tolist(), pieces, strict=True)]

    def _piece(self, identity: int, piece: str) -> str:
        text = str(self.tokenizer.decode([identity]))
        # Decoding a token alone drops the blank before it, which is a part of it.
        start = ""
        if piece.startswith(("Ġ", "▁")) and not text.startswith(" "):
            start = " "
        if text and "�" not in text:
            return start + text
        return piece


def load(name: str | Path, device: str = "cpu") -> Reader:
    """Load a model and its tokenizer from a local folder, or by its Hugging Face name.

    Raises:
        ModelError: it is not there, is not what was sealed, cannot be fetched, has no tokenizer or does not read text.
    """
    transformers = require("transformers", extra="look")
    # Its notes on generation and on weights would stand between the user and the table.
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    require("huggingface_hub", extra="look").utils.logging.set_verbosity_error()
    folder = Path(name)
    local = folder.is_dir()
    if not local and (folder.is_absolute() or str(name).startswith((".", "~"))):
        raise ModelError(
            f"the model must be a folder or a Hugging Face name, and there is no folder {str(name)!r}"
        )
    if local and (folder / sealing.SEAL).exists():
        _check_seal(folder)
    try:
        config = transformers.AutoConfig.from_pretrained(name)
        # With the configuration that was read, so that the hub is asked once.
        model = getattr(transformers, auto_class(config)).from_pretrained(name, config=config)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    except Exception as error:  # the hub, the file system and every model's code raise what they please
        raise ModelError(_why(str(name), local, error)) from error
    # Where there is none, transformers gives False in its place, and no error.
    if not callable(tokenizer):
        raise ModelError(f"the model must have a tokenizer, and {name} has none")
    return Reader(str(name), _moved(model.eval(), device), tokenizer, _limit(config, tokenizer))


def load_embedded(device: str = "cpu") -> Reader:
    """Load the embedded model without transformers, which takes longer to import than all the rest to run.

    Raises:
        ModelError: its folder is not what was sealed, or torch has no such device here.
    """
    _check_seal(embedded.folder())
    model = llama.load()
    limit = int(model.config.max_position_embeddings)
    return Reader("Regard's embedded model", _moved(model, device), Tokenizer(), limit)


def _check_seal(folder: Path) -> None:
    # Before anything is read from it: a file that was altered could hold anything.
    if reason := sealing.broken(folder):
        raise ModelError(reason)


def _moved(model: Any, device: str) -> Any:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(
            f"the device must be one that torch has here, got {device!r}: {_first_line(error)}"
        ) from error


def auto_class(config: Any) -> str:
    """The Auto class that gives the model with its head where it writes, without one where it only reads."""
    if config.is_encoder_decoder:
        return "AutoModelForSeq2SeqLM"
    if _writes(config):
        return "AutoModelForCausalLM"
    return "AutoModel"


def _writes(config: Any) -> bool:
    return any("CausalLM" in name or "LMHead" in name for name in config.architectures or ())


def _limit(config: Any, tokenizer: Any) -> int | None:
    """The longest text: the smallest of what configuration and tokenizer say."""
    limits = [
        getattr(config, name, None) for name in ("max_position_embeddings", "n_positions", "max_seq_len")
    ]
    limits.append(tokenizer.model_max_length)
    sensible = [int(number) for number in limits if isinstance(number, int) and 0 < number < 10**9]
    if not sensible:
        return None
    # RoBERTa's positions start behind that of padding, so two of its embeddings stand for no token.
    if config.model_type in ("roberta", "xlm-roberta", "camembert"):
        return min(sensible) - 2
    return min(sensible)


def _why(name: str, local: bool, error: Exception) -> str:
    """One line on why a model cannot be loaded."""
    # The commonest mistake, for which the library's own message speaks of the hub.
    if local and not (Path(name) / "config.json").is_file():
        return f"the folder {name!r} must hold a Hugging Face model, and it has no config.json"
    if local:
        return f"the model in {name!r} cannot be loaded: {_first_line(error)}"
    return (
        f"the model must be a local folder or a name that Hugging Face knows: there is no folder {name!r} here, "
        f"and it could not be fetched ({_first_line(error)}); if it is a text for the embedded model: "
        f"regard look language {name!r}"
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines:
        return lines[0][:200]
    return type(error).__name__
