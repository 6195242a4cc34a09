"""Sign-in by OpenID Connect: any provider that has a discovery document, by an authorization code with PKCE.

`provider` and `tokens` need the extra `sign-in`, and are imported by the command alone.
"""
