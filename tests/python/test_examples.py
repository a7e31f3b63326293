"""The programs of examples/: built as their README says, run, and their answers compared with ONNX Runtime's on the same model."""

import subprocess
import sys
import time
import wave

import numpy as np
import onnxruntime
import pytest

from example_programs import EXAMPLES, build, from_wheel


@pytest.fixture(scope="module")
def vad(optc, tmp_path_factory):
    """The program, the model, and a recording at 16 kHz with the places of its phrases."""
    work = tmp_path_factory.mktemp("vad")
    model = from_wheel(EXAMPLES / "vad/silero-wheel.txt", "silero_vad/data/silero_vad_op18_ifless.onnx")
    subprocess.run([optc, model, "-o", work / "silero_vad", "--name", "silero_vad", "--dim", "batch=1", "--dim", "sequence=288..576", "-q"], check=True)
    return build("vad", work / "build", f"-DSILERO_BUNDLE={work / 'silero_vad'}"), model, work


def speech(path, rate=16000):
    done = subprocess.run([sys.executable, EXAMPLES / "vad/make_speech.py", path, "--rate", str(rate)], check=True, capture_output=True, text=True)
    return [tuple(map(float, line.split())) for line in done.stdout.splitlines()]


def samples_of(path):
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32).reshape(-1, file.getnchannels()).mean(axis=1) / 32768, file.getframerate()


def probabilities(model, path):
    """Of each frame, by ONNX Runtime without optimizations."""
    samples, rate = samples_of(path)
    frame, context = (256, 32) if rate == 8000 else (512, 64)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    state, result = np.zeros((2, 1, 128), np.float32), []
    padded = np.concatenate([np.zeros(context, np.float32), samples, np.zeros(-len(samples) % frame, np.float32)])
    for at in range(0, len(padded) - context, frame):
        probability, state = session.run(None, {"input": padded[None, at : at + context + frame], "sr": np.array(rate), "state": state})
        result.append(float(probability[0, 0]))
    return result, frame, rate, len(samples)


def segments(chances, frame, rate, length):
    """The rules of segmenter.h on a whole recording: runs of speech, joined over short silences, long enough, padded."""
    found, begin, quiet = [], None, None
    for i, chance in enumerate([*chances, None]):
        at = i * frame
        if begin is None:
            if chance is not None and chance >= 0.5:
                begin, quiet = at, None
            continue
        if chance is None:
            found.append((begin, min(length, length if quiet is None else quiet)))
            break
        if chance >= 0.5:
            quiet = None
        elif chance < 0.35 and quiet is None:
            quiet = at
        if quiet is not None and at + frame - quiet >= rate // 10:
            found.append((begin, quiet))
            begin = None
    padded = []
    for begin, end in found:
        if end - begin >= rate // 4:
            pad = rate * 3 // 100
            padded.append((max(begin - pad, padded[-1][1] if padded else 0), min(end + pad, length)))
    return [f"{begin / rate:.3f} {end / rate:.3f}" for begin, end in padded]


@pytest.mark.parametrize("rate", [16000, 8000])
def test_vad_finds_what_onnx_runtime_finds(vad, tmp_path, rate):
    program, model, _ = vad
    phrases = speech(tmp_path / "s.wav", rate)
    chances, frame, _, length = probabilities(model, tmp_path / "s.wav")
    got = [float(line) for line in subprocess.run([program, "--probabilities", tmp_path / "s.wav"], check=True, capture_output=True, text=True).stdout.split()]
    np.testing.assert_allclose(got, chances, atol=2e-4)
    lines = subprocess.run([program, tmp_path / "s.wav"], check=True, capture_output=True, text=True).stdout.splitlines()
    assert lines == segments(chances, frame, rate, length)
    # They are where the phrases are.
    assert len(lines) == len(phrases)
    for line, (begin, end) in zip(lines, phrases):
        assert abs(float(line.split()[0]) - begin) < 0.1 and abs(float(line.split()[1]) - end) < 0.2


def test_vad_takes_channels_and_cut_ends(vad, tmp_path):
    program, model, _ = vad
    speech(tmp_path / "s.wav")
    samples, _ = samples_of(tmp_path / "s.wav")
    with wave.open(str(tmp_path / "stereo.wav"), "wb") as file:  # ends in the middle of a word, and of a frame
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(16000)
        cut = np.round(samples[: 16000 * 4 + 77] * 32768).astype(np.int16)
        file.writeframes(np.stack([cut, cut], axis=1).tobytes())
    want = segments(*probabilities(model, tmp_path / "stereo.wav"))
    assert subprocess.run([program, tmp_path / "stereo.wav"], check=True, capture_output=True, text=True).stdout.splitlines() == want and len(want) == 2


def test_vad_answers_while_a_stream_goes_on(vad, tmp_path):
    program, _, _ = vad
    speech(tmp_path / "s.wav")
    data = (tmp_path / "s.wav").read_bytes()
    process = subprocess.Popen([program, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(data[: 44 + 3 * 32000])  # three seconds: the first phrase is over
    process.stdin.flush()
    begin = time.time()
    assert process.stdout.readline() == b"0.770 2.334\n" and time.time() - begin < 20
    process.stdin.write(data[44 + 3 * 32000 :])
    process.stdin.close()
    assert len(process.stdout.read().splitlines()) == 3 and process.wait() == 0


@pytest.mark.parametrize("damage,words", [
    (lambda d: b"", "no WAV"), (lambda d: b"RIFF", "cut off"), (lambda d: d[:30], "cut off"), (lambda d: b"X" + d[1:], "no WAV"),
    (lambda d: d[:20] + b"\x03\x00" + d[22:], "16-bit PCM"), (lambda d: d[:22] + b"\x00\x00" + d[24:], "16-bit PCM"), (lambda d: d[:34] + b"\x18\x00" + d[36:], "16-bit PCM"),
    (lambda d: d[:24] + (44100).to_bytes(4, "little") + d[28:], "44100 Hz"), (lambda d: d[:16] + b"\xff\xff\xff\xff" + d[20:], "cut off"), (lambda d: d[:12] + d[36:], "before their format"),
])
def test_vad_refuses_what_it_cannot_read(vad, tmp_path, damage, words):
    program, _, work = vad
    source = work / "small.wav"
    if not source.exists():
        with wave.open(str(source), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16000)
            file.writeframes(bytes(2000))
    (tmp_path / "bad.wav").write_bytes(damage(source.read_bytes()))
    done = subprocess.run([program, tmp_path / "bad.wav"], capture_output=True, text=True)
    assert done.returncode == 2 and words in done.stderr and done.stdout == ""


@pytest.fixture(scope="module")
def chat(optc, tmp_path_factory):
    """The program of a decoder of two layers, and the model that both it and ONNX Runtime run: weights of 4 bits."""
    work = tmp_path_factory.mktemp("chat")
    subprocess.run([sys.executable, EXAMPLES / "chat/make_model.py", work / "decoder.onnx", "--layers", "2", "--units", "128", "--heads", "4", "--groups", "2"], check=True)
    subprocess.run([optc, "opt", work / "decoder.onnx", "-o", work / "quantized.onnx", "--quantize-weights=int4", "--disable-pass", "matmul.bias", "-q"], check=True)
    subprocess.run([optc, work / "decoder.onnx", "-o", work / "decoder", "--quantize-weights=int4", "--alias", "past_*=present_*", "--variant", "S=1", "-q"], check=True)
    return build("chat", work / "build", f"-DDECODER_BUNDLE={work / 'decoder'}", "-DCMAKE_BUILD_TYPE=Debug"), work / "quantized.onnx"


def chat_said(program, *arguments, **options):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, check=True, **options).stdout


def greedy(model, prompt, count):
    """By ONNX Runtime without optimizations, all bytes anew in each step: what caches must not change."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    empty = {i.name: np.zeros((i.shape[0], 0, i.shape[2]), np.float32) for i in session.get_inputs()[1:]}
    tokens = list(prompt)
    for _ in range(count):
        logits = session.run(["logits"], {"ids": np.array(tokens, np.int64), **empty})[0]
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


def test_chat_writes_what_onnx_runtime_writes(chat):
    program, model = chat
    prompt = b"The ship left the harbour"
    want = greedy(model, prompt, 40)
    for threads in (1, 2):
        said = chat_said(program, "--ids", "--tokens", 40, "--threads", threads, prompt.decode())
        assert [int(line) for line in said.split()] == want[: len(said.split())] and len(said.split()) in (40, want.index(256) if 256 in want else 40)
    assert len(set(want)) > 1  # no text of one letter


def test_chat_remembers_a_conversation(chat):
    """The second reply is that to all before it, cache and all."""
    program, model = chat
    first, second = b"good morning\n", b"and now\n"
    said = chat_said(program, "--ids", "--tokens", 10, input=first + second).split()
    reply = greedy(model, first, 10)
    assert 256 not in reply
    assert [int(t) for t in said] == reply + greedy(model, first + bytes(reply) + second, 10)


def test_chat_samples_by_its_seed(chat):
    program, _ = chat
    hot = ["--tokens", 60, "--temperature", 1.5, "quiet"]
    assert chat_said(program, "--seed", 3, *hot) == chat_said(program, "--seed", 3, *hot) != chat_said(program, "--seed", 4, *hot)
    likeliest = chat_said(program, "--tokens", 60, "quiet")
    for cut in (["--top-k", 1], ["--top-p", 0]):
        assert chat_said(program, "--seed", 3, *cut, *hot) == likeliest


@pytest.mark.parametrize("arguments,words", [(["--tokens", "0", "a"], "a number from 1"), (["--colour", "a"], "no option"), ([""], "prompt is empty"), (["a", "b"], "more than one")])
def test_chat_refuses(chat, arguments, words):
    done = subprocess.run([chat[0], *arguments], capture_output=True, text=True)
    assert done.returncode == 2 and words in done.stderr and not done.stdout


def test_chat_is_measured_beside_onnx_runtime(chat):
    program, model = chat
    done = subprocess.run([sys.executable, EXAMPLES / "chat/bench.py", program, model, "--tokens", "24", "--rounds", "1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("tokens/s") == 3 and "24 of 24 tokens as chat's" in done.stdout
