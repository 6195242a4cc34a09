"""The errors that users meet. Knows nothing of the rest of the package.

Every message says what must hold and what was got; `docs/errors.md` has a section for each class.
"""

from __future__ import annotations

import importlib
from types import ModuleType


class RegardError(Exception):
    """Base of every error that Regard raises on purpose."""


class ShapeError(RegardError, ValueError):
    """Tensors whose ranks, sizes or types do not fit together."""


class MaskError(RegardError, ValueError):
    """A mask of the wrong shape, or one whose polarity (attend or blocked?) was not said."""


class ArgumentError(RegardError, ValueError):
    """Any other argument outside its range: a name that does not exist, a negative scale."""


class EngineError(RegardError, RuntimeError):
    """An engine asked for by name that does not exist here or refuses this case."""


class WatchError(RegardError, RuntimeError):
    """An attention call that cannot be read exactly, with the module's name and the way out."""


class UnseenWarning(UserWarning):
    """Modules of a watched model did what may be attention and are not in the record; `record.unseen` names them."""


class AlarmWarning(UserWarning):
    """A head of a model that trains breaks a rule of its monitor; `monitor.alarms` has all alarms."""


class FewQuestionsWarning(UserWarning):
    """A record or profile has fewer questions with one clear answer than were asked for."""


class RecordError(RegardError, ValueError):
    """A record that is damaged, too new or hostile, or that does not hold what is asked of it."""


class ModelError(RegardError, ValueError):
    """A model or text that cannot be used: not found, no network, too long for the model."""


class TrainingError(RegardError, RuntimeError):
    """A training that cannot go on: a number that is not finite, a damaged checkpoint, another run's folder."""


class GroupError(RegardError, RuntimeError):
    """Processes that do not make the same call together, or one among them that no longer answers."""


class MissingPackageError(RegardError, ImportError):
    """An optional package that this function needs, with the command that installs it."""


def require(package: str, *, extra: str) -> ModuleType:
    """Import `package` where it is used, or say which extra of Regard brings it.

    Raises:
        MissingPackageError: the package is not installed.
    """
    # Asked for by importing it: a package that is there may still fail, for one of its own that is not.
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingPackageError(
            f"this needs the package {package.partition('.')[0]!r}, which is not installed: "
            f'pip install "regard[{extra}]"'
        ) from error
