"""The hooks: the few places where models call attention, whatever their family. One idea per file.

Each hook catches calls, says in a `CapturedCall` what they compute, and runs them untouched. It knows torch or
Hugging Face conventions; it does not know what is done with a captured call.
"""
