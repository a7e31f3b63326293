"""The command `optc`: the program takes the place of this process."""

import os
import sys

from optc import environment, executable


def main():
    os.execve(executable(), [executable(), *sys.argv[1:]], environment())


if __name__ == "__main__":
    main()
