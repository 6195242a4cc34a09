"""Runs the command line in this process and builds small models in folders."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from regard import embedded
from regard.cli import main

Result = tuple[int, str, str]


@pytest.fixture
def regard(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """`regard("look", …)` in an empty folder: exit status, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["regard", *arguments])
        try:
            main()
            status = 0
        except SystemExit as stop:
            status = int(stop.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An encoder and an encoder–decoder with random weights, with the embedded model's tokenizer."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel, T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(embedded.folder())
    size = len(tokenizer)
    made: dict[str, Callable[[], torch.nn.Module]] = {
        "encoder": lambda: BertModel(
            BertConfig(vocab_size=size, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                       intermediate_size=31, max_position_embeddings=64)
        ),
        "encoder-decoder": lambda: T5ForConditionalGeneration(
            T5Config(vocab_size=size, d_model=20, d_kv=5, d_ff=31, num_layers=2, num_heads=4, decoder_start_token_id=0)
        ),
    }  # fmt: skip
    folders = {}
    for name, make in made.items():
        folders[name] = tmp_path_factory.mktemp(name)
        make().save_pretrained(folders[name])
        tokenizer.save_pretrained(folders[name])
    return folders
