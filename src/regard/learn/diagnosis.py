"""From what came of the calls to a verdict: what is wrong, by comparison with known mistakes on every input.

A mistake is named only where the solution does on every input what the known wrong variant does, and on at least one of
them gives its wrong numbers. Whatever else is wrong is shown by the smallest input, without a guess at the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from regard.learn import child, running
from regard.learn.exercise import Exercise, Variant
from regard.learn.running import Failure, Outcome, Run
from regard.learn.verdict import Example, Message, Verdict

# Of the largest expected number: float32 passes, float16 does not, and no variant comes near.
TOLERANCE = 1e-5
# Numbers that an example shows at most; larger arrays are shown by their shape.
SHOWN = 64
DIGITS, MORE_DIGITS = 4, 8


def diagnose(exercise: Exercise, run: Run) -> Verdict:
    """The verdict on a run of a learner's function on the cases of an exercise."""
    notes = _notes(run)
    if (broken := _broken(exercise, run)) is not None:
        return Verdict(False, (broken, *notes), exercise.name)
    expected = _expected(exercise)
    wrong = [
        number
        for number, (right, got) in enumerate(zip(expected, run.outcomes, strict=True))
        if not same(right, got)
    ]
    changed = sorted({name for outcome in run.outcomes for name in outcome.changed})
    messages = []
    if wrong:
        # One cause at most: a second guess would send a learner the wrong way.
        messages.append(_named(exercise, run.outcomes) or _unnamed(exercise, run.outcomes, wrong))
    if changed:
        messages.append(_changed(exercise, run.outcomes, changed, right=not wrong))
    if messages:
        return Verdict(False, (*messages, *notes), exercise.name)
    praise = Message("praise", exercise.praise)
    return Verdict(True, (praise, *_better(run.outcomes), *notes), exercise.name)


# --- comparison --------------------------------------------------------------------------------------------


def same(right: Outcome, got: Outcome) -> bool:
    """Whether two calls came to the same: errors are like errors, and numbers are alike to rounding."""
    if right.state != "value" or got.state != "value":
        return {right.state, got.state} == {"raised"}
    if right.value is None or got.value is None or right.value.shape != got.value.shape:
        return False
    # A result may be of any size, and NaN where the known mistake has NaN.
    finite = np.abs(right.value[np.isfinite(right.value)])
    near = TOLERANCE * max(1.0, float(finite.max(initial=0.0)))
    return bool(np.allclose(got.value, right.value, rtol=0.0, atol=near, equal_nan=True))


@cache
def _expected(exercise: Exercise) -> list[Outcome]:
    return running.here(exercise.solution, exercise.cases)


@cache
def _mistaken(exercise: Exercise) -> list[tuple[Variant, list[Outcome]]]:
    return [(variant, running.here(variant.function, exercise.cases)) for variant in exercise.variants]


def _named(exercise: Exercise, outcomes: Sequence[Outcome]) -> Message | None:
    """The message of the known mistake that does the same on every input; None where none does."""
    expected = _expected(exercise)
    # First exactly; then with anything at all on large scores, where a second mistake may hide the first.
    for lenient in (False, True):
        for variant, mistaken in _mistaken(exercise):
            shown = _proof(exercise, expected, mistaken, outcomes, lenient)
            if shown is not None:
                example = _example(exercise, shown, expected[shown], outcomes[shown])
                return Message("must_mend", variant.text, variant.name, example)
    return None


def _proof(
    exercise: Exercise,
    expected: Sequence[Outcome],
    mistaken: Sequence[Outcome],
    outcomes: Sequence[Outcome],
    lenient: bool,
) -> int | None:
    """The first case that shows a variant's wrong numbers, if the outcomes are the variant's on all cases."""
    proof = None
    for number, case in enumerate(exercise.cases):
        # A case at which anything goes proves nothing either.
        loose = lenient and case.large
        if not loose and not same(mistaken[number], outcomes[number]):
            return None
        telling = mistaken[number].state == "value" and not same(expected[number], mistaken[number])
        if proof is None and telling and not loose:
            proof = number
    return proof


# --- messages ----------------------------------------------------------------------------------------------


def _broken(exercise: Exercise, run: Run) -> Message | None:
    """What kept the function from being run to its end."""
    # In the order in which they would have come.
    name = exercise.function
    if run.unreadable is not None:
        return Message("must_mend", f"The file cannot be run: {_error_line(run.unreadable)}.", "unreadable")
    if run.functions is not None:
        others = ", ".join(run.functions) or "no function"
        return Message(
            "must_mend", f"The file must define the function {name}; it defines {others}.", "missing"
        )
    for number, outcome in enumerate(run.outcomes):
        failure = outcome.failure
        if failure is not None and failure.kind == "NotImplementedError":
            return Message("must_mend", f"{name} is not written yet.", "not written")
        if outcome.state not in ("time", "memory", "ended"):
            continue
        text = {
            "time": f"{name} did not come to an end within {child.SECONDS} seconds of computing: is there a loop "
            "that never ends?",
            "memory": f"{name} asked for more than {child.MEMORY >> 30} GiB of memory on this small input.",
            "ended": f"{name} ended its whole process, without a result and without an error.",
        }[outcome.state]
        example = Example(_inputs(exercise, number), _shown(_expected(exercise)[number]), "nothing")
        return Message("must_mend", text, outcome.state, example)
    return None


def _unnamed(exercise: Exercise, outcomes: Sequence[Outcome], wrong: Sequence[int]) -> Message:
    """What is wrong on the smallest input, where no known mistake does the same."""
    # An error says more than numbers that are wrong.
    number = next((n for n in wrong if outcomes[n].failure is not None), wrong[0])
    right, got = _expected(exercise)[number], outcomes[number]
    return Message(
        "must_mend", _symptom(exercise.function, right, got), example=_example(exercise, number, right, got)
    )


def _symptom(name: str, right: Outcome, got: Outcome) -> str:
    """What is wrong with one outcome, in a sentence; no cause is claimed."""
    if got.failure is not None:
        return f"{name} stops on this input: {_error_line(got.failure)}."
    if got.type == "NoneType":
        return f"{name} returns None: is there a return at its end?"
    if got.type == "tuple":
        return f"{name} returns a tuple of {got.length}, where one array must come out."
    if got.reason:
        return f"{name} returns something that is no array of numbers, of type {got.type}: {got.reason}"
    # A shape says more than numbers, and NaN more than other numbers.
    if right.shape != got.shape:
        return f"The result has the shape {_axes(got.shape)}, where {_axes(right.shape)} must come out."
    if got.value is None:
        return f"The result has the dtype {got.kind}, where real numbers must come out."
    if not np.isfinite(got.value).all():
        return (
            "There is NaN or infinity in the result: look for a division by 0, a logarithm of 0, or an exp that "
            "overflows."
        )
    return (
        "The numbers are wrong on this input. It is none of the mistakes that are known here: follow the example by "
        "hand, line by line."
    )


def _changed(
    exercise: Exercise, outcomes: Sequence[Outcome], names: Sequence[str], *, right: bool
) -> Message:
    """What to say of inputs that were changed in place."""
    number = next(number for number, outcome in enumerate(outcomes) if outcome.changed)
    listed = " and ".join(names)
    text = (
        f"{exercise.function} changes {listed} in place, and whoever called it still needs that: take x = x / 2 "
        "instead of x /= 2 or x[...] = …, or begin with a copy."
    )
    example = Example(
        _inputs(exercise, number), f"{listed} as before", f"{listed} with other numbers after the call"
    )
    return Message("must_mend", text, "in place" if right else "", example)


def _better(outcomes: Sequence[Outcome]) -> list[Message]:
    """What a passing solution could do better."""
    messages = []
    types = {outcome.type for outcome in outcomes} & {"list", "matrix", "Tensor"}
    if types:
        text = f"It returns a {types.pop()}; an np.ndarray is what the next function expects."
        messages.append(Message("could_be_better", text))
    if "float32" in {outcome.kind for outcome in outcomes}:
        text = "It computes in float32 where the inputs are float64: half of the digits are lost for no need."
        messages.append(Message("could_be_better", text))
    return messages


def _notes(run: Run) -> list[Message]:
    notes = []
    if run.printed.strip():
        first = run.printed.strip().splitlines()[0]
        notes.append(Message("note", f"It prints while it runs, beginning with: {first:.80}"))
    if not run.guarded:
        text = (
            "Here the function runs in this very process: a loop without an end must be interrupted by hand."
        )
        notes.append(Message("note", text))
    return notes


# --- examples ----------------------------------------------------------------------------------------------


def _error_line(failure: Failure) -> str:
    """An error in one line, with the line of the file that it came from."""
    where = ""
    if failure.line is not None:
        where = f" (line {failure.line}: {failure.source})" if failure.source else f" (line {failure.line})"
    text = " ".join(failure.text.split())
    return f"{failure.kind}{': ' if text else ''}{text}{where}".rstrip(".")


def _example(exercise: Exercise, number: int, right: Outcome, got: Outcome) -> Example:
    shown = _shown(right), _shown(got)
    # Numbers that were rounded look alike in few digits.
    if shown[0] == shown[1]:
        shown = _shown(right, MORE_DIGITS), _shown(got, MORE_DIGITS)
    return Example(_inputs(exercise, number), *shown)


def _inputs(exercise: Exercise, number: int) -> str:
    """The inputs of a case, a name a line."""
    return "\n".join(_named_value(name, value) for name, value in exercise.cases[number].arguments.items())


def _named_value(name: str, value: object) -> str:
    head = f"{name} = "
    return head + _array(np.asarray(value)).replace("\n", "\n" + " " * len(head))


def _shown(outcome: Outcome, digits: int = DIGITS) -> str:
    """What came of a call, as text."""
    # What the error says stands in the message.
    if outcome.failure is not None:
        return outcome.failure.kind
    if outcome.value is None:
        return outcome.kind or outcome.type
    return _array(outcome.value, digits)


def _array(array: np.ndarray, digits: int = DIGITS) -> str:
    if array.size > SHOWN:
        return f"an array of shape {_axes(array.shape)}"
    if array.dtype.kind == "f":
        # NumPy writes e+04 where numbers differ much; a reader compares digits.
        formats = {"float_kind": lambda number: f"{number:.{digits}g}"}
        return np.array2string(array, separator=", ", max_line_width=90, formatter=formats)  # type: ignore[arg-type]
    return np.array2string(array, separator=", ", max_line_width=90)


def _axes(shape: tuple[int, ...]) -> str:
    return str(shape)
