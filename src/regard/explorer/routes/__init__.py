"""The routes, thin: each hands its arguments to `regard.web` or to what is open, and its answer back."""
