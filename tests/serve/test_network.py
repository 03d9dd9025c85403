"""What leaves or enters by other ways than plain HTTP on loopback: TLS with a certificate of the test's own, images behind URLs
of named hosts, and models that cannot answer texts. Python's standard library and openssl."""
import http.client
import http.server
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

from server import Server, World


def near(a, b):
    assert len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) <= 1e-6


def tls(w, want):
    if not shutil.which("openssl"):
        print("no openssl: TLS is not tested")
        return
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "tls.key", "-out", "tls.crt", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], cwd=w.dir, check=True, capture_output=True)
    p = w.run("serve", "--checkpoint", w.model, "--port", "0", "--tls-cert", "tls.crt", "--tls-key", "tls.crt", fails=True)
    if "no TLS" in p.stderr:
        print("libmicrohttpd without TLS: not tested")
        return
    assert p.returncode != 0 and "certificate and its key" in p.stderr and p.stderr.strip().count("\n") == 0, (p.returncode, p.stderr)
    s = Server(w, "--tls-cert", "tls.crt", "--tls-key", "tls.key")
    assert s.url.startswith("https://"), s.url
    trust = ssl.create_default_context(cafile=w.path("tls.crt"))
    c = http.client.HTTPSConnection("localhost", s.port, timeout=60, context=trust)
    for _ in range(2):  # the connection stays
        c.request("POST", "/v1/embeddings", json.dumps({"input": "a red circle"}))
        r = c.getresponse()
        assert r.status == 200
        near(json.loads(r.read())["data"][0]["embedding"], want["text"][0])
    c.close()
    try:  # a client that does not know the certificate
        ssl.create_default_context().wrap_socket(socket.create_connection(("127.0.0.1", s.port)), server_hostname="localhost")
        raise AssertionError("an unknown certificate was accepted")
    except ssl.SSLError:
        pass
    plain = socket.create_connection(("127.0.0.1", s.port))  # garbage instead of a handshake
    plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
    plain.close()
    code, err = s.stop()
    assert code == 0, err


class Files(http.server.BaseHTTPRequestHandler):
    image = b""
    over = threading.Event()

    def do_GET(self):
        port = self.server.server_address[1]
        to = {"/private": f"http://127.0.0.1:{port}/image.jpg", "/stranger": "http://stranger.invalid/image.jpg", "/file": "file:///etc/hostname",
              "/round": "/round"}.get(self.path)
        self.send_response(302 if to else 200)
        if to:
            self.send_header("Location", to)
            self.end_headers()
        elif self.path == "/large":
            self.end_headers()
            try:
                for _ in range(64):
                    self.wfile.write(bytes(1 << 18))
            except OSError:
                pass
        elif self.path == "/slow":
            self.end_headers()
            self.wfile.flush()
            Files.over.wait(120)
        else:
            self.send_header("Content-Length", str(len(self.image)))
            self.end_headers()
            self.wfile.write(self.image)

    def log_message(self, *words):
        pass


def urls(w, want):
    Files.image = w.image(0)
    files = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    threading.Thread(target=files.serve_forever, daemon=True).start()
    port = files.server_address[1]
    here, there = f"http://localhost:{port}", f"http://127.0.0.1:{port}"

    def ask(s, url):
        status, _, data = s.post("/v1/embeddings", {"input": url, "modality": "image"})
        return status, data.decode()

    s = Server(w)
    status, text = ask(s, here + "/image.jpg")
    if "libcurl" in text:
        print("no libcurl: URLs are not tested")
        s.stop()
        return
    assert status == 400 and "--allow-url-host" in text, text  # off unless a host is named
    s.stop()
    s = Server(w, "--allow-url-host", "localhost", "--max-body-mb", "1", "--timeout", "3")
    status, text = ask(s, here + "/image.jpg")
    assert status == 200, text
    near(json.loads(text)["data"][0]["embedding"], want["image"][0])
    assert ask(s, there + "/image.jpg")[0] == 400  # another name for the same host is another host
    for path, words in (("/stranger", "--allow-url-host"), ("/private", "--allow-url-host"), ("/file", "cannot fetch"), ("/round", "private network"),
                        ("/large", "larger"), ("/slow", "cannot fetch")):
        begin = time.time()
        status, text = ask(s, here + path)
        assert status in (400, 503) and (words in text or status == 503), (path, status, text)
        assert time.time() - begin < 100, path  # --timeout, not the sender, ends it
    code, err = s.stop()
    assert code == 0, err
    # both names are allowed: a redirect still may not lead into a private network
    s = Server(w, "--allow-url-host", "localhost", "--allow-url-host", "127.0.0.1")
    assert ask(s, there + "/image.jpg")[0] == 200
    status, text = ask(s, here + "/private")
    assert status == 400 and "private network" in text, text
    assert s.stop()[0] == 0
    Files.over.set()
    files.shutdown()


def without_tokenizer(w):
    """Images are answered, texts refused in one line that names the remedy."""
    with open(w.model, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    for key in ("tokenizer", "digest.model", "digest.train", "file_version"):  # as in a file of before 0.2, which has no checksum
        head["__metadata__"].pop(key, None)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(w.path("bare.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data[8 + n:])
    model, w.model = w.model, w.path("bare.safetensors")
    s = Server(w)
    status, _, data = s.post("/v1/embeddings", {"input": "a dog"})
    assert status == 400 and b"no tokenizer" in data and b"vocabulary" in data, data
    assert s.post("/v1/embeddings", w.image(0), {"Content-Type": "image/jpeg"})[0] == 200
    code, err = s.stop()
    assert code == 0 and [line for line in err.splitlines() if "no tokenizer" in line and "--vocab" in line], err
    w.model = model


def main():
    w = World(sys.argv[1])
    want = w.embed(texts=["a red circle"], images=[os.path.join(w.images, w.files[0])])
    tls(w, want)
    urls(w, want)
    without_tokenizer(w)
    print("ok")


main()
