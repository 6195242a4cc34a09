"""What does the engine of torch operations take, which runs wherever torch does? Its rows beside plain SDPA."""

from __future__ import annotations

from torch.nn.functional import scaled_dot_product_attention

from benchmarks import common
from regard.attention import observe
from regard.bench.contests import Contest, Setting


def contest(setting: Setting) -> Contest:
    """Output and all row statistics by the tiles engine, beside SDPA."""
    query, key, value = setting.inputs()
    return Contest(
        f"output and row statistics, tiles: {setting}",
        "tiles",
        {
            "regard": lambda: observe(
                query, key, value, mask=setting.mask, statistics="rows", engine="tiles"
            ),
            "sdpa": lambda: scaled_dot_product_attention(query, key, value, is_causal=setting.causal),
        },
        4.0 * setting.pairs * setting.dim,
    )


def main() -> None:
    """Measure two lengths, both masks, and write the result."""
    common.prepare()
    settings = [Setting(length, 64, causal) for length in (1024, 4096) for causal in (True, False)]
    figures = {str(setting): common.run(contest(setting), 15) for setting in settings}
    common.write(
        "tiles", "python -m benchmarks.tiles", "rows ≤ 2.6 × SDPA, float32", figures, each_processor=True
    )


if __name__ == "__main__":
    main()
