"""A tiny model, images, and a server on a free port, for tests that talk HTTP. Python's standard library alone."""
import atexit
import http.client
import http.server
import json
import os
import signal
import struct
import subprocess
import tempfile
import threading
import zlib


class World:
    """A folder with images, a model of a few steps, and its index."""

    def __init__(self, cloob):
        self.cloob = os.path.abspath(cloob)
        self.folder = tempfile.TemporaryDirectory(prefix="cloob-serve-")
        self.dir = self.folder.name
        self.run("synth", "--out", "w", "--count", "48", "--size", "32", "--seed", "1")
        self.run("train", "--train-data", "w/train.tsv", "--model", "tiny", "--batch-size", "16", "--max-steps", "2",
                 "--warmup", "1", "--logs", "runs", "--name", "first", "--log-every-n-steps", "1")
        self.model = self.path("runs/first/checkpoints/latest.safetensors")
        self.images = self.path("w/images")
        self.files = sorted(os.listdir(self.images))

    def path(self, name):
        return os.path.join(self.dir, name)

    def run(self, *words, fails=False):
        p = subprocess.run([self.cloob, *words], cwd=self.dir, capture_output=True, text=True)
        if not fails and p.returncode != 0:
            raise SystemExit(f"cloob {' '.join(words)}: {p.stderr}")
        return p

    def image(self, i=0):
        with open(os.path.join(self.images, self.files[i]), "rb") as f:
            return f.read()

    def embed(self, texts=None, images=None):
        """Rows as `cloob embed` writes them."""
        words = ["embed", "--checkpoint", self.model, "--out", "e.safetensors"]
        if texts:
            with open(self.path("texts.txt"), "w") as f:
                f.write("\n".join(texts) + "\n")
            words += ["--texts", "texts.txt"]
        if images:
            words += ["--images", *images]
        self.run(*words)
        with open(self.path("e.safetensors"), "rb") as f:
            data = f.read()
        n = struct.unpack("<Q", data[:8])[0]
        head = json.loads(data[8:8 + n])
        out = {}
        for name in ("image", "text"):
            if name in head:
                begin, end = head[name]["data_offsets"]
                rows, width = head[name]["shape"]
                flat = struct.unpack(f"<{rows * width}f", data[8 + n + begin:8 + n + end])
                out[name] = [flat[i * width:(i + 1) * width] for i in range(rows)]
        return out


class Server:
    def __init__(self, world, *options, env=None):
        self.process = subprocess.Popen([world.cloob, "serve", "--checkpoint", world.model, "--port", "0", *options],
                                        cwd=world.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        atexit.register(self.process.kill)  # a failed test leaves none behind
        line = self.process.stdout.readline().strip()
        if not line.startswith("http"):
            raise SystemExit("the server did not start: " + self.process.stderr.read())
        self.url = line
        self.port = int(line.rsplit(":", 1)[1])

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, body bytes)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        c.request(method, path, body, headers or {})
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, dict((k.lower(), v) for k, v in r.getheaders()), data

    def get(self, path, headers=None):
        return self.ask("GET", path, None, headers)

    def post(self, path, body, headers=None):
        return self.ask("POST", path, body, headers)

    def json(self, path, body=None, code=200):
        status, _, data = self.get(path) if body is None else self.post(path, body)
        assert status == code, f"{path}: {status} {data[:300]!r}"
        return json.loads(data)

    def memory(self, which="VmHWM"):
        """Resident MiB: the peak, or with VmRSS now. None where /proc has no such thing."""
        try:
            with open(f"/proc/{self.process.pid}/status") as f:
                return next(int(line.split()[1]) / 1024 for line in f if line.startswith(which))
        except (OSError, StopIteration):
            return None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


def multipart(fields):
    """fields: [(name, filename or None, type or None, bytes)]. Returns (body, content type)."""
    mark = "xyzzy-3141592653"
    out = b""
    for name, filename, kind, data in fields:
        head = f'--{mark}\r\nContent-Disposition: form-data; name="{name}"'
        if filename:
            head += f'; filename="{filename}"'
        if kind:
            head += f"\r\nContent-Type: {kind}"
        out += head.encode() + b"\r\n\r\n" + data + b"\r\n"
    return out + f"--{mark}--\r\n".encode(), f"multipart/form-data; boundary={mark}"


def png(width, height):
    """An RGB PNG, small as a file, whose decoding takes width x height x 3 bytes."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes([y & 255, 7, 99]) * width for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows, 1))
            + chunk(b"IEND", b""))


def serve_bytes(data):
    """Another server on loopback that answers every GET with data. Returns it and a URL of it."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            try:
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:  # the client has gone
                pass

        def log_message(self, *words):
            pass

    files = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=files.serve_forever, daemon=True).start()
    return files, f"http://localhost:{files.server_address[1]}/x"
