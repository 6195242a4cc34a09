"""The path of the lessons: what each is about, how long it takes, and where one can play with its subject."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LessonTitle:
    """A lesson of the path.

    Attributes:
        number: from 1. title: as it stands above the lesson. about: its subjects, in a few words.
        minutes: that it takes. file: its script in the folder of lessons.
        play: the address of a view of the explorer in which to play with its subject. hint: what to do there.
    """

    number: int
    title: str
    about: str
    minutes: int
    file: str
    play: str
    hint: str


def _lesson(
    number: int, minutes: int, file: str, title: str, about: str, play: str, hint: str
) -> LessonTitle:
    return LessonTitle(number, title, about, minutes, f"{number:02d}_{file}.py", f"#/{play}", hint)


# Titles, minutes and addresses are those of the lessons themselves, which a test reads.
PATH = (
    _lesson(
        *(1, 10, "similarity", "Similarity"),
        "dot product, norm, cosine, angle; unit vectors",
        "playground?play.kind=self&play.made=clusters",
        "Tokens in clusters of similar vectors: attention finds the clusters.",
    ),
    _lesson(
        *(2, 15, "soft_lookup", "A dictionary that answers softly"),
        "any score, softmax, temperature",
        "playground?play.kind=self&play.temperature=0.2",
        "A cold softmax: move the temperature, and watch the entropy.",
    ),
    _lesson(
        *(3, 15, "scaled_dot_product", "Scaled dot-product attention, and why √d"),
        "softmax(QKᵀ / √d) V, and the spread of scores, measured",
        "playground?play.kind=self&play.embed_dim=256&play.num_heads=1",
        "One wide head: a temperature of 1/16 = 1/√256 is the missing √d.",
    ),
    _lesson(
        *(4, 15, "masks", "Masks: who may attend to whom"),
        "causal, padding, three conventions",
        "playground?play.kind=window&play.window=4",
        "A window: change the kind, and see what each leaves out.",
    ),
    _lesson(
        *(5, 20, "many_heads", "Many heads"),
        "by hand, of unequal width, learned",
        "playground?play.kind=self&play.embed_dim=64&play.num_heads=8",
        "Eight heads side by side; change their number, and the parameters stay.",
    ),
    _lesson(
        *(6, 15, "cross_attention", "Cross-attention, and alignment"),
        "alignment: a translator of dates",
        "model",
        "Run the task translate on a date of your own, and open a head of its cross-attention.",
    ),
    _lesson(
        *(7, 15, "the_bottleneck", "The bottleneck that attention removed"),
        "one vector against Bahdanau and Luong, by length",
        "model",
        "Run the task bottleneck on longer and longer rows of dates, and watch the diagonal.",
    ),
    _lesson(
        *(8, 20, "positions", "Positions: how order gets in"),
        "sinusoidal, learned, rotary, ALiBi, relative",
        "playground?play.kind=causal&play.positions=alibi",
        "ALiBi, then rotary, sinusoidal, none: the same tokens, four pictures.",
    ),
    _lesson(
        *(9, 15, "layers_and_parameters", "Encoder and decoder layers, and where the parameters are"),
        "residuals, norms; BERT, GPT-2, GPT-3 counted",
        "playground?play.kind=cross",
        "Beside the map: the formula of the parameters.",
    ),
    _lesson(
        *(10, 20, "models_in_small", "BERT and GPT in small, and three tasks"),
        "BERT-like, GPT-like; answers, summaries, captions",
        "model",
        "Run the task answer on a story of your own, or caption on a picture of digits.",
    ),
    _lesson(
        *(11, 20, "training", "Training: the first steps, and the history of heads"),
        "initial weights, warm-up, clipping, the history of heads",
        "playground?play.kind=causal&play.init=small",
        "Small initial weights begin uniform; compare them with xavier and zero.",
    ),
    _lesson(
        *(12, 20, "cheaper_attention", "Cheaper attention, and what it costs"),
        "sparse, linear, low rank, and their errors",
        "playground?play.kind=linear&play.length=128",
        "Linear, then low rank and window: operations and memory of each.",
    ),
    _lesson(
        *(13, 20, "reading_heads", "Reading heads"),
        "roles, entropy, rollout",
        "model",
        "Color and sort the heads by a role, and open them.",
    ),
    _lesson(
        *(14, 20, "what_attention_does_not_tell", "What attention does not tell"),
        "other weights, norms, ablation, uniform weights",
        "head",
        "Change a head (off, uniform, top 1), and see what the next token does.",
    ),
    _lesson(
        *(15, 20, "collapse_and_vanishing", "Collapse and vanishing: cures that work, and cures that do not"),
        "heads that see one key, and heads that see all alike",
        "playground?play.kind=causal&play.temperature=0.05",
        "This is what collapse looks like; at a temperature of 20 heads vanish.",
    ),
    _lesson(
        *(16, 15, "long_contexts", "Long contexts: caches, sinks and windows"),
        "KV cache, sinks, windows, beyond the trained length",
        "model",
        "Paste a long text into the embedded model, and zoom down to single weights.",
    ),
    _lesson(
        *(17, 20, "inside_the_engine", "Inside the engine: why nothing n × n is needed"),
        "the state, its merge, tiles",
        "head",
        "Zoom into the map: far out pooled cells, close by single weights.",
    ),
)
