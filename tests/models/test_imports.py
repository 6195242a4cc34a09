"""Models are imported when they are asked for; and they are compiled."""

import subprocess
import sys

import torch
from torch.testing import assert_close

from models.small import BATCH, SOURCE, VOCABULARY, ids, model_of


def test_transformers_is_imported_when_models_are_asked_for():
    code = (
        "import sys, regard as rg; assert 'transformers' not in sys.modules\n"
        "rg.models.DecoderConfig; assert 'transformers' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_hint_where_transformers_is_missing():
    code = (
        "import sys; sys.modules['transformers'] = None\nimport regard as rg\n"
        "try: rg.models\nexcept rg.RegardError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.strip() == (
        "this needs the package 'transformers', which is not installed: pip install \"regard[hf]\""
    )


def test_a_graph_of_the_decoder():
    model, read = model_of("decoder"), ids(SOURCE)
    got = torch.compile(model, backend="aot_eager")(read, labels=read)
    assert_close(got.loss, model(read, labels=read).loss)
    assert got.logits.shape == (BATCH, SOURCE, VOCABULARY)
