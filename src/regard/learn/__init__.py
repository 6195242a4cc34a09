"""Exercises on attention, and checks that say what is wrong with a solution.

Each exercise is one function to write with NumPy. A check runs it beside a catalogue of known mistakes and names the
one that does the same; `regard learn` does so whenever the file is saved.
"""

from regard.learn.checking import check, check_file, exercise, exercises
from regard.learn.exercise import Case, Exercise, Variant
from regard.learn.quizzes.concepts import concepts
from regard.learn.quizzes.generate import quiz
from regard.learn.quizzes.picture import Picture
from regard.learn.quizzes.question import Choice, Grade, Question, grade
from regard.learn.verdict import Example, Message, Verdict

__all__ = [
    "Case",
    "Choice",
    "Example",
    "Exercise",
    "Grade",
    "Message",
    "Picture",
    "Question",
    "Variant",
    "Verdict",
    "check",
    "check_file",
    "concepts",
    "exercise",
    "exercises",
    "grade",
    "quiz",
]
