"""What a figure and a page say, to be compared as text."""

from html import unescape

from draw.looking import texts


def written(figure):
    """All that is written in a figure, in one line."""
    return " ".join(" ".join(text.get_text().split()) for text in texts(figure))


def plain(html):
    """A page's source with its signs as they are read."""
    return unescape(html)
