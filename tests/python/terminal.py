"""A program whose standard error is a terminal."""

import os
import pty
import subprocess


def run(command):
    """Its standard output, and what it drew on the terminal. It must end with 0; what it draws must fit a terminal's buffer (4 KiB)."""
    leader, follower = pty.openpty()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=follower, text=True, check=True)
    os.close(follower)
    drawn = b""
    while True:
        try:
            data = os.read(leader, 4096)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        drawn += data
    os.close(leader)
    return done.stdout, drawn.decode()
