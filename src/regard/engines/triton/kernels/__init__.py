"""Device code. The only modules of the package that import Triton; they are imported when a kernel is launched."""
