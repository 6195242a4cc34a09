"""A worker that needs no model: what a request asks of it stands in its text."""

import importlib.util
import os
import shutil
import time
from pathlib import Path

# By its file: the package itself would import torch, which takes seconds.
CHILD = Path(__file__).parents[2] / "src" / "regard" / "explorer" / "child.py"
SPEC = importlib.util.spec_from_file_location("child", CHILD)
child = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(child)


def run(request, report):
    """Do what the text says: `slow`, `crash`, `memory`, `killed`, `noise`, or the path of a record to copy."""
    word, _, rest = request["text"].partition(" ")
    report(0.25, f"pid {os.getpid()}")
    if word == "slow":
        for step in range(600):
            report(step / 600, f"pid {os.getpid()}")
            time.sleep(0.05)
    if word == "crash":
        raise RuntimeError("the model crashed")
    if word == "memory":
        bytearray(1 << 42)
    if word == "grow":
        held = []
        while True:
            held.append(bytes(10 << 20))
    if word == "killed":
        os.kill(os.getpid(), 9)
    if word == "noise":
        print("what a library prints")
        os.system("echo and what its child prints")
    if request["image"]:
        rest = rest or Path(request["image"]).read_text()
    shutil.copytree(rest, request["folder"])
    return {"text": rest, "message": f"ran {request['source']} in {os.getpid()}", "code": "record = ..."}


child.serve(run, memory=int(os.environ.get("MEMORY", 0)) or None)
