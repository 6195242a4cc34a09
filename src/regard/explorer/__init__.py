"""The local web app's server: what is open, who may ask, work that takes long, and thin routes.

It computes no attention of its own: `regard.web` does. Imported by the command alone, as it needs fastapi.
"""
