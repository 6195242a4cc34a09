"""Train the embedded model, the small decoder that `regard look` runs on when no model is named.

    python scripts/train_embedded.py [--minutes 83 | --steps N] [--seed 0] [--out src/regard/embedded]

Knows the model, the optimizers and the schedule. Text is `embedded_data`, measuring is `embedded_measure`,
the card is `embedded_card`. Every save leaves a whole folder: weights, tokenizer, card.
"""

import argparse
import ctypes
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import embedded_data as data
import embedded_measure as measure
import torch
from embedded_card import Progress, Training, save
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

# Rows of each kind in one batch.
BATCH = {"library": 8, "renamed": 3, "packages": 4, "repeated": 1}
WARM_UP = 0.02
MATRIX_RATE = 0.02
OTHER_RATE = 3e-3


def build_model() -> LlamaForCausalLM:
    """Four layers of eight heads, 256 wide, rotary positions, gated MLP, tied embeddings: 3.7 M weights."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=data.VOCABULARY,
            hidden_size=256,
            intermediate_size=704,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=8,
            max_position_embeddings=data.CONTEXT,
            tie_word_embeddings=True,
            bos_token_id=data.FILE_ID,
            eos_token_id=data.FILE_ID,
            pad_token_id=data.FILE_ID,
        )
    )


def optimizers(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon (Jordan 2024) for the matrices of the layers, AdamW for embeddings and norms."""
    # Not the embeddings, matrices as well: Muon is made for the weights between hidden layers.
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.05, momentum=0.95),
        torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def batches(streams: dict[str, Tensor], seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches (input ids, labels) for ever, each (rows, CONTEXT), mixed as `BATCH` says."""
    generator = torch.Generator().manual_seed(seed)
    kinds = {kind: data.endless_rows(tokens, generator) for kind, tokens in streams.items()}
    while True:
        plain = [next(kinds[kind]) for kind in kinds for _ in range(BATCH[kind])]
        pairs = [(row, row) for row in plain] + [data.repeated(generator) for _ in range(BATCH["repeated"])]
        yield torch.stack([row for row, _ in pairs]), torch.stack([labels for _, labels in pairs])


def rate(done: float) -> float:
    """Learning-rate factor at this fraction of the run: linear warm-up, then linear to zero."""
    return min(done / WARM_UP, (1 - done) / (1 - WARM_UP), 1.0)


def train(
    model: LlamaForCausalLM,
    feed: Iterator[tuple[Tensor, Tensor]],
    fraction_done: Callable[[int, float], float],
    watch: Callable[[Progress], None],
    precision: torch.dtype,
) -> Progress:
    """Take steps until `fraction_done(steps, seconds)` reaches 1; `watch` sees each step's progress."""
    steppers = optimizers(model)
    first_rates = [group["lr"] for stepper in steppers for group in stepper.param_groups]
    progress, start = Progress(), time.monotonic()
    while (done := fraction_done(progress.steps, time.monotonic() - start)) < 1:
        groups = [group for stepper in steppers for group in stepper.param_groups]
        for group, first in zip(groups, first_rates, strict=True):
            # The schedule begins at 0, with which the first step would do nothing.
            group["lr"] = first * max(rate(done), 1e-4)
        ids, labels = next(feed)
        model.train()
        with torch.autocast("cpu", dtype=precision, enabled=precision != torch.float32):
            loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for stepper in steppers:
            stepper.step()
            stepper.zero_grad(set_to_none=True)
        if not math.isfinite(loss.item()):
            raise SystemExit(f"the loss must stay finite; it became {loss.item()} at step {progress.steps}")
        seconds = time.monotonic() - start
        progress.took_step(ids.numel(), loss.item(), seconds, fraction_done(progress.steps + 1, seconds))
        watch(progress)
    return progress


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description="Train the embedded model on Python's standard library.")
    parser.add_argument("--minutes", type=float, default=83, help="length of the run (default 83)")
    parser.add_argument("--steps", type=int, help="length of the run in steps, instead of minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--float32", action="store_true", help="no bfloat16 autocast")
    parser.add_argument("--save-minutes", type=float, default=10, help="between saves (default 10)")
    default = Path(__file__).resolve().parents[1] / "src" / "regard" / "embedded"
    parser.add_argument("--out", type=Path, default=default, help="folder to write")
    return parser.parse_args()


def keep_memory() -> None:
    """Tell glibc not to hand freed memory back: fresh pages for every step cost a third of the time."""
    if sys.platform == "linux":
        # M_MMAP_MAX and M_TRIM_THRESHOLD of malloc.h.
        mmap_max, trim_threshold = -4, -1
        c_library = ctypes.CDLL(None)
        c_library.mallopt(mmap_max, 0)
        c_library.mallopt(trim_threshold, 2**31 - 1)


def main() -> None:
    """Read the text, train, and save every few minutes and at the end."""
    options = arguments()
    keep_memory()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)

    library, held_out = data.standard_library()
    further = data.packages(data.PACKAGES, without=[*library, *held_out])
    tokenizer = data.train_tokenizer(library)
    streams = {
        "library": data.stream(tokenizer, library),
        "renamed": data.stream(tokenizer, data.renamed(library, tokenizer, options.seed)),
        "packages": data.stream(tokenizer, further),
    }
    test_rows = data.rows(data.stream(tokenizer, held_out))
    for kind, tokens in streams.items():
        print(f"{kind}: {len(tokens):,} tokens")
    print(f"held out: {test_rows[:, 1:].numel():,} tokens in {len(held_out)} files")

    model = build_model()
    training = Training(
        model=model,
        tokenizer=tokenizer,
        files={"library": library, "packages": further, "held_out": held_out},
        streams=streams,
        test_rows=test_rows,
        baselines=measure.baselines(streams["library"], test_rows, data.VOCABULARY),
        settings={
            "seed": options.seed,
            "threads": options.threads,
            "precision": "float32" if options.float32 else "bfloat16 autocast, float32 weights",
            "context": data.CONTEXT,
            "rows_per_batch": BATCH,
            "optimizer": f"Muon (matrices, {MATRIX_RATE}) and AdamW (embeddings and norms, {OTHER_RATE})",
            "schedule": f"linear warm-up over {WARM_UP:.0%} of the run, then linear to zero",
            "length": f"{options.steps} steps" if options.steps else f"{options.minutes:g} minutes",
        },
    )
    print({name: round(value, 3) for name, value in training.baselines.items()}, flush=True)

    saved = 0.0

    def watch(progress: Progress) -> None:
        nonlocal saved
        if progress.steps % 25 == 0:
            print(progress.line(), flush=True)
        if progress.seconds - saved > 60 * options.save_minutes:
            saved = progress.seconds
            print(save(training, progress, options.out), flush=True)

    def fraction_done(steps: int, seconds: float) -> float:
        return steps / options.steps if options.steps else seconds / (60 * options.minutes)

    precision = torch.float32 if options.float32 else torch.bfloat16
    final = train(model, batches(streams, options.seed), fraction_done, watch, precision)
    print(save(training, final, options.out))


if __name__ == "__main__":
    main()
