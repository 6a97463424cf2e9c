"""terminal.py: runs a program at a pseudo terminal and plays the person.

    python3 terminal.py PROGRAM ARGUMENT... <STEPS

STEPS is Python that calls the functions below; the first one that fails ends the program with a
message and exit code 1. Colours and movements of the cursor are taken out of what is compared.
"""
import fcntl
import json
import os
import pty
import re
import select
import struct
import sys
import termios
import time

LEFT, RIGHT, UP = "\033[D", "\033[C", "\033[A"
CTRL_A, CTRL_C, CTRL_D, CTRL_E, CTRL_U, BACKSPACE = "\x01", "\x03", "\x04", "\x05", "\x15", "\x7f"
LIMIT_S = 120
ROWS, COLUMNS = 30, int(os.environ.get("TERMINAL_COLUMNS", "200"))


def resize(columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))


pid, terminal = pty.fork()
if pid == 0:
    terminal = 0
    resize(COLUMNS)  # by the program's own process, so that it never sees another size
    os.execvp(sys.argv[1], sys.argv[1:])
raw = b""
at = 0  # what comes before was waited for


def fail(what):
    sys.exit("%s\n  after %r" % (what, seen()[-400:]))


def seen():
    text = raw.decode("utf-8", "replace")
    return re.sub(r"\033\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def read(seconds):
    """True unless the program has closed the terminal."""
    global raw
    if select.select([terminal], [], [], seconds)[0]:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            return False
        raw += part
        return bool(part)
    return True


def wait(pattern):
    """Waits until pattern comes behind what was waited for last."""
    global at
    end = time.monotonic() + LIMIT_S
    while True:
        found = re.compile(pattern).search(seen(), at)
        if found:
            at = found.end()
            return
        if time.monotonic() > end or not read(1):
            fail("no " + pattern)


def prompt():
    wait(r"> $|> [^\n]*$")


def keys(*all_keys):
    for text in all_keys:
        data = text.encode()
        while data:  # the terminal takes some at a time
            read(0.01)
            data = data[os.write(terminal, data[:512]):]


def line(text):
    keys(text + "\r")


def paste(text):
    keys("\033[200~" + text + "\033[201~")


def answered():
    wait(r"tokens/s; context \d+ of \d+\]")


def dropped():
    """Ctrl-C has dropped the line, and the next one is read. A Ctrl-C or Ctrl-D that comes between
    the two, while the terminal changes its modes, is lost."""
    wait(r"\^C\n> ")


def saw(text):
    if text not in seen():
        fail("never " + text)


def messages(name):
    path = os.environ["XDG_STATE_HOME"] + "/tandem/chats/" + name + ".json"
    return json.load(open(path))["messages"]


def said(name, text):
    """The last message of the person in the saved conversation is text."""
    own = [m["content"] for m in messages(name) if m["role"] == "user"][-1]
    if own != text:
        fail("said %r" % own[:200])


def ends(code):
    end = time.monotonic() + LIMIT_S
    while read(1):
        if time.monotonic() > end:
            fail("the program goes on")
    status = os.waitpid(pid, 0)[1]
    if os.waitstatus_to_exitcode(status) != code:
        fail("exit code %d" % os.waitstatus_to_exitcode(status))


def interrupt_until_closed():
    """Presses Ctrl-C five times a second until the program closes the terminal. No text would tell
    of the end for sure: a Ctrl-C discards what is written and not yet read."""
    pressed = time.monotonic()
    end = pressed + LIMIT_S
    while read(0.05):
        now = time.monotonic()
        if now > end:
            fail("the program goes on")
        if now > pressed + 0.2:
            pressed = now
            os.write(terminal, CTRL_C.encode())


exec(sys.stdin.read())
