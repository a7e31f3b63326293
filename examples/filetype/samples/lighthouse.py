"""Flashing patterns of lighthouses: reads "Fl(2) 10s" and says when the light is on."""

import re
import sys
from dataclasses import dataclass

PATTERN = re.compile(r"Fl\((?P<flashes>\d+)\)\s+(?P<period>\d+)s")


@dataclass
class Light:
    flashes: int
    period: float

    @classmethod
    def parse(cls, text: str) -> "Light":
        match = PATTERN.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not a flashing pattern: {text!r}")
        return cls(int(match["flashes"]), float(match["period"]))

    def is_on(self, seconds: float) -> bool:
        within = seconds % self.period
        return any(abs(within - 2 * flash) < 0.5 for flash in range(self.flashes))


def main(argv: list[str]) -> int:
    for argument in argv:
        light = Light.parse(argument)
        print(argument, "".join("#" if light.is_on(t / 2) else "." for t in range(40)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
