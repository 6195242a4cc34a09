"""What was seen: a record of one forward pass, a profile of many, a history of a training, records of many runs."""

from regard.record.call import Call
from regard.record.history import History
from regard.record.loading import load
from regard.record.picture import Picture, attach_picture, picture_of
from regard.record.profile import Profile
from regard.record.record import Record
from regard.record.runs import Runs

__all__ = [
    "Call",
    "History",
    "Picture",
    "Profile",
    "Record",
    "Runs",
    "attach_picture",
    "load",
    "picture_of",
]
