"""What goes wrong at a sign-in, in sentences for a page. Knows no requests."""

from __future__ import annotations


class SignInError(Exception):
    """A sign-in that did not succeed.

    Args:
        why: a sentence for whoever signs in.
        status: of the answer: 400 for what the browser brought, 502 for what the provider answered, 504 where it
            did not.
    """

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status
