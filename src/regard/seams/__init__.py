"""The seams: the few places where models call attention, whatever their family. One idea per file.

Each seam catches calls, says in a `Reading` what they compute, and runs them untouched. It knows torch or
Hugging Face conventions; it does not know what is done with a reading.
"""
