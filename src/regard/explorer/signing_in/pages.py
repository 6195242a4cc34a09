"""The few pages of a sign-in, which need no script. Knows no provider."""

from __future__ import annotations

from html import escape

from starlette.responses import HTMLResponse, Response

STYLE_PATH = "/sign-in/page.css"
STYLE = """\
:root { color-scheme: light dark;
  --page: #f7f7f5; --panel: #fff; --ink: #1b1c20; --line: #e1e1dd; --accent: #3d4fc4; --on: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --page: #101116; --panel: #17191f; --ink: #e9e9ec; --line: #2b2d36; --accent: #9dabff; --on: #10121c; }
}
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, sans-serif; }
main { max-width: 520px; margin: 12vh auto 0; padding: 24px; background: var(--panel); border: 1px solid var(--line);
  border-radius: 10px; overflow-wrap: anywhere; }
h1 { margin: 0 0 8px; font-size: 18px; font-weight: 650; }
a { display: inline-block; padding: 7px 14px; border-radius: 7px; background: var(--accent); color: var(--on);
  text-decoration: none; font-weight: 600; }
a:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
@media (max-width: 560px) { main { margin: 12px; } }
"""


def style() -> Response:
    """The style of the pages, which the server's policy allows as a file alone."""
    return Response(STYLE, media_type="text/css")


def entered(name: str, to: str) -> HTMLResponse:
    """Goes on at once.

    A redirection would not do: the browser came from the provider, and would send no cookie that is for our own pages.

    Args:
        name: of the visitor. to: a view, `#/…`.
    """
    go_on = f'<meta http-equiv="refresh" content="0; url=/{escape(to)}">'
    welcome = "You are signed in."
    if name:
        welcome = f"You are signed in as {name}."
    return _page("Signed in", welcome, "/" + to, "Go on", 200, go_on)


def failed(why: str, status: int) -> HTMLResponse:
    """Says why a sign-in did not succeed."""
    return _page("Not signed in", f"{why[:1].upper()}{why[1:]}.", "/#/learn", "Back to Learn", status)


def _page(title: str, text: str, link: str, label: str, status: int, head: str = "") -> HTMLResponse:
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)} – Regard</title><link rel="icon" href="/icon.svg">'
        f'<link rel="stylesheet" href="{STYLE_PATH}">{head}</head>'
        f"<body><main><h1>{escape(title)}</h1><p>{escape(text)}</p>"
        f'<a href="{escape(link)}">{escape(label)}</a></main></body></html>',
        status,
    )
