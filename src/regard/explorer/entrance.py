"""The page on which a visitor enters a password: a form, no script, and a policy that allows no more than that."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape

from starlette.responses import HTMLResponse

from regard.explorer.security import POLICY
from regard.explorer.visitors import LONGEST, REST

# The colors of the explorer's own style, which this page cannot load: it is for those who have come in.
STYLE = """
:root { --page: #f7f7f5; --panel: #ffffff; --ink: #1b1c20; --soft: #595c67; --line: #e1e1dd; --strong-line: #8a8d98;
  --accent: #3d4fc4; --on-accent: #ffffff; --bad: #a3232b; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --page: #101116; --panel: #17191f; --ink: #e9e9ec; --soft: #a6a9b5;
  --line: #2b2d36; --strong-line: #6d7080; --accent: #9dabff; --on-accent: #10121c; --bad: #ff8f8f; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 16px; background: var(--page);
  color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, sans-serif; }
main { width: 100%; max-width: 400px; padding: 24px; background: var(--panel); border: 1px solid var(--line);
  border-radius: 10px; }
h1 { margin: 0 0 4px; font-size: 20px; font-weight: 650; }
p { margin: 0 0 16px; color: var(--soft); font-size: 14px; }
form + p { margin: 16px 0 0; }
.fault { color: var(--bad); }
label { display: block; font-weight: 600; font-size: 14px; }
input, button, .button { width: 100%; min-height: 44px; padding: 8px 12px; border-radius: 7px; font: inherit;
  color: inherit; }
input { margin: 4px 0 12px; border: 1px solid var(--strong-line); background: var(--panel); }
.button { display: grid; place-items: center; font-size: 16px; text-decoration: none; }
button, .button { border: 1px solid var(--accent); background: var(--accent); color: var(--on-accent); font-weight: 600;
  cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
"""
HASH = b64encode(sha256(STYLE.encode()).digest()).decode()
# Its own style by its digest, and a form that asks the server itself and nobody else.
PAGE_POLICY = POLICY.replace("style-src 'self'", f"style-src 'sha256-{HASH}'").replace(
    "form-action 'none'", "form-action 'self'"
)
# Without a referrer browsers do not say either which page a form was sent from, and that is asked for.
REFERRER = "same-origin"
ABOUT = (
    "What you open, run and write here is yours alone; other visitors see nothing of it. It lasts as long as your "
    f"session: until you leave, for {REST / 3600:.0f} hours without a visit, and {LONGEST / 86400:.0f} days at most. "
    "Learn has a button that saves your progress to a file."
)
SIGNING_IN = """<p>Sign in, and your progress is here whenever you come back.</p>
<p><a class="button" href="/sign-in">Sign in with {provider}</a></p>
"""
FORM = """<p>Enter the password of this server.</p>
<form method="post">
<label for="password">Password</label>
<input type="password" id="password" name="password" autocomplete="current-password" required autofocus{described}>
<button>Enter</button>
</form>
<p>{about}</p>
"""


def page(status: int = 401, fault: str = "", *, by_password: bool = True, provider: str = "") -> HTMLResponse:
    """The page.

    Args:
        status: of the answer. fault: what was wrong with the last attempt, in a sentence.
        by_password: whether a password lets in. provider: who signs visitors in, for people; "" for nobody.
    """
    alert = f'<p class="fault" id="fault" role="alert">{escape(fault)}</p>' if fault else ""
    described = ' aria-describedby="fault" aria-invalid="true"' if fault else ""
    ways = []
    if provider:
        ways.append(SIGNING_IN.format(provider=escape(provider)))
    if by_password:
        ways.append(FORM.format(described=described, about=ABOUT))
    # Without an action the form goes to the address of the page, the view behind # included.
    content = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Enter – Regard</title>
<style>{STYLE}</style>
<main>
<h1>Regard</h1>
{alert}{"".join(ways)}</main>
</html>
"""
    headers = {"content-security-policy": PAGE_POLICY, "referrer-policy": REFERRER}
    return HTMLResponse(content, status, headers)
