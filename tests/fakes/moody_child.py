"""A child that does what its request says: answers, hangs, dies, floods, prints to stdout."""

import os
import signal
import sys
import time

from exporter import worker


def act(request: dict) -> dict:
    mood = request.get("mood", "fine")
    if mood == "hang":
        time.sleep(60)
    if mood == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if mood == "exit":
        sys.stderr.write("cannot go on\n")
        sys.stderr.flush()
        os._exit(7)
    if mood == "raise":
        raise KeyError("field")
    if mood == "print":
        print("noise on stdout, as driver libraries like to make")
        os.write(1, b'{"ok": true, "pid": 1}\n')
    if mood == "flood":
        os.write(2, b"the same line\n" * 50_000)
    return {"pid": os.getpid(), "settings": worker.spec()}


if __name__ == "__main__":
    worker.serve({"act": act})
