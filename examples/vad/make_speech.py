"""Writes a WAV of something like speech: vowels by a formant synthesizer, in syllables and phrases, with pauses of faint noise.

Usage: make_speech.py OUTPUT.wav [--rate 16000] [--seed 1]

Prints where the phrases are, in seconds. Only the standard library; the same arguments give the same bytes."""

import argparse
import math
import random
import struct
import wave

# Formants of vowels, Hz: the textbook's averages for a man's voice (Peterson and Barney, 1952).
VOWELS = {"a": (730, 1090, 2440), "e": (530, 1840, 2480), "i": (270, 2290, 3010), "o": (570, 840, 2410), "u": (300, 870, 2240)}
BANDWIDTHS = (60, 90, 150)
PHRASES = ("ai oeu iao", "euo a iae ouia", "oi", "aeiou eai uo iea")  # a blank is a short rest
PAUSES = (0.8, 1.2, 0.7, 1.5, 0.6)  # before, between and behind the phrases, seconds


class Resonator:
    """Two poles at a frequency, with the gain of 1 at 0 Hz (Klatt, 1980)."""

    def __init__(self, rate):
        self.rate, self.y1, self.y2 = rate, 0.0, 0.0

    def step(self, x, frequency, bandwidth):
        c = -math.exp(-2 * math.pi * bandwidth / self.rate)
        b = 2 * math.exp(-math.pi * bandwidth / self.rate) * math.cos(2 * math.pi * frequency / self.rate)
        y = (1 - b - c) * x + b * self.y1 + c * self.y2
        self.y1, self.y2 = y, self.y1
        return y


def voiced(text, rate, draw):
    """Samples of one phrase, of about unit size."""
    filters = [Resonator(rate) for _ in BANDWIDTHS]
    formants, phase, out, last = list(VOWELS["a"]), 0.0, [], 0.0
    total = sum(0.16 if letter != " " else 0.06 for letter in text)
    for letter in text:
        length = int(rate * (0.06 if letter == " " else 0.16 * draw.uniform(0.85, 1.15)))
        for i in range(length):
            at = len(out) / rate / total
            pitch = 130 * (1.15 - 0.3 * at) * (1 + 0.02 * math.sin(2 * math.pi * 5 * len(out) / rate)) * draw.uniform(0.99, 1.01)
            phase += pitch / rate
            # The glottis opens over 60 % of a period and closes at once.
            opened = (phase % 1) / 0.6
            flow = (3 * opened**2 - 2 * opened**3) if opened < 1 else 0.0
            source = flow - last + draw.gauss(0, 0.01)
            last = flow
            if letter != " ":
                for k, wanted in enumerate(VOWELS[letter]):
                    formants[k] += (wanted - formants[k]) * 30 / rate
            swell = 0.15 if letter == " " else math.sin(math.pi * (i + 0.5) / length) ** 0.5
            sample = source * swell
            for k, resonator in enumerate(filters):
                sample = resonator.step(sample, formants[k], BANDWIDTHS[k])
            out.append(sample)
    loudest = max(abs(s) for s in out)
    return [s / loudest for s in out]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--rate", type=int, default=16000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw, samples = random.Random(options.seed), []

    def pause(seconds):
        samples.extend(draw.gauss(0, 0.001) for _ in range(int(seconds * options.rate)))

    pause(PAUSES[0])
    for phrase, after in zip(PHRASES, PAUSES[1:]):
        begin = len(samples)
        samples.extend(0.5 * s + draw.gauss(0, 0.001) for s in voiced(phrase, options.rate, draw))
        print(f"{begin / options.rate:.2f} {len(samples) / options.rate:.2f}")
        pause(after)
    with wave.open(options.output, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(options.rate)
        file.writeframes(b"".join(struct.pack("<h", round(max(-1.0, min(1.0, s)) * 32767)) for s in samples))


if __name__ == "__main__":
    main()
