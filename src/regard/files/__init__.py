"""Files written whole or not at all, and the seals of what is read back."""

from regard.files.writing import (
    UNFINISHED,
    check_writable,
    one_at_a_time,
    publish,
    publish_folder,
    replacing,
    replacing_all,
    temporary,
    write,
)

__all__ = [
    "UNFINISHED",
    "check_writable",
    "one_at_a_time",
    "publish",
    "publish_folder",
    "replacing",
    "replacing_all",
    "temporary",
    "write",
]
