"""A hub of models on loopback, for tests: the tree API, HEAD and GET of files, redirects of large files to a second
port, and faults on demand. Python's standard library alone.

    hub_server.py NAME FOLDER [CERTIFICATE]    serves FOLDER as NAME, prints the address, and ends with its input"""
import hashlib
import http.server
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

LARGE = 512  # files of this size and more are stored apart, as Git LFS does


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    """Files of one commit; large ones are named by their SHA-256."""

    def __init__(self, name, files, revision="main"):
        self.name, self.files, self.revision = name, dict(files), revision
        everything = "".join(k + hashlib.sha1(v).hexdigest() for k, v in sorted(self.files.items()))
        self.commit = hashlib.sha1(everything.encode()).hexdigest()

    def etag(self, name):
        data = self.files[name]
        return hashlib.sha256(data).hexdigest() if len(data) >= LARGE else git_sha1(data)

    def tree(self):
        rows = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "onnx"}]
        for name, data in self.files.items():
            row = {"type": "file", "oid": git_sha1(data), "size": len(data), "path": name}
            if len(data) >= LARGE:
                row["lfs"] = {"oid": self.etag(name), "size": len(data), "pointerSize": 130}
            rows.append(row)
        return rows


class Faults:
    """What goes wrong, and how often. Counters are decreased as faults happen."""

    def __init__(self):
        self.busy = 0          # answers 503 or 429 with Retry-After
        self.retry_after = "0"
        self.prefix = ""       # of the paths of the hub: its address ends with it
        self.cut = 0           # connections of the store that end early
        self.cut_after = 0     # after this many bytes of the body
        self.slow = 0.0        # seconds between pieces
        self.piece = 1 << 16
        self.wrong = set()     # files whose bytes are wrong
        self.no_range = False  # the store sends whole files
        self.gated = False
        self.token = None      # wanted for private repositories
        self.linked = True     # large files are named with their hash and size
        self.rows = None       # replaces the rows of the tree
        self.pages = 0         # rows of a page; 0: all
        self.endless = False   # the tree is an error with a body that does not end


class Hub:
    """with Hub([Repo(...)]) as hub: hub.url is HF_ENDPOINT. certificate: a file with a key, for https."""

    def __init__(self, repos, certificate=None):
        self.certificate = certificate
        self.repos = {r.name: r for r in repos}
        self.faults = Faults()
        self.lock = threading.Lock()
        self.log = []  # (method, path, token, range) of every request, in order; the store's paths begin with /store
        self.sent = 0  # bytes of bodies that the store sent
        self.front, self.store = self.listen(Front), self.listen(Store)
        self.url, self.store_url = (f"http{'s' if certificate else ''}://127.0.0.1:{s.server_address[1]}" for s in (self.front, self.store))

    def listen(self, handler):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.hub, server.daemon_threads = self, True
        if self.certificate:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(self.certificate)
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # clients that were killed
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for s in (self.front, self.store):
            s.shutdown()
            s.server_close()

    def take(self, name):
        """True while a fault of this kind is left."""
        with self.lock:
            left = getattr(self.faults, name)
            if left > 0:
                setattr(self.faults, name, left - 1)
            return left > 0


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def note(self, prefix=""):
        token = self.headers.get("Authorization", "")
        with self.server.hub.lock:
            self.server.hub.log.append((self.command, prefix + self.path, token, self.headers.get("Range")))

    def reply(self, code, headers=(), body=b""):
        self.send_response(code)
        for k, v in dict(headers).items():
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()


class Front(Handler):
    """The hub itself."""

    def do_GET(self):
        hub, f = self.server.hub, self.server.hub.faults
        self.note()
        if hub.take("busy"):
            return self.reply(503 if f.busy % 2 else 429, {"Retry-After": f.retry_after})
        if not self.path.startswith(f.prefix + "/"):
            return self.reply(404)
        path = urllib.parse.urlsplit(self.path[len(f.prefix):])
        tree = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", path.path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path.path)
        info = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path.path)
        found = tree or file or info
        repo = hub.repos.get(found.group(1)) if found else None
        token = self.headers.get("Authorization")
        if f.gated and token != "Bearer secret":
            return self.reply(401 if not token else 403, {"X-Error-Code": "GatedRepo"})
        if not repo or (f.token and token != "Bearer " + f.token):
            return self.reply(404 if token else 401, {"X-Error-Code": "RepoNotFound"})
        revision = urllib.parse.unquote(found.group(2) or "main")
        if revision not in (repo.revision, repo.commit):
            return self.reply(404, {"X-Error-Code": "RevisionNotFound"})
        if tree and f.endless:
            return self.endless()
        if tree:
            return self.tree(repo, urllib.parse.parse_qs(path.query))
        if info:
            return self.info(repo)
        self.file(repo, urllib.parse.unquote(file.group(3)))

    def endless(self):
        self.close_connection = True
        self.send_response(400)
        self.end_headers()
        while self.server.hub.faults.endless:
            self.wfile.write(bytes(1 << 16))

    def tree(self, repo, query):
        f = self.server.hub.faults
        rows, headers = f.rows if f.rows is not None else repo.tree(), {"Content-Type": "application/json"}
        begin = int(query.get("cursor", ["0"])[0])
        if f.pages and begin + f.pages < len(rows):
            address = f"{self.server.hub.url}{self.path.split('?')[0]}?recursive=true&cursor={begin + f.pages}"
            headers["Link"] = f'<{address}>; rel="next"'
        page = rows[begin:begin + f.pages] if f.pages else rows
        self.reply(200, headers, json.dumps(page).encode())

    def info(self, repo):
        siblings = [{"rfilename": n} for n in repo.files]
        body = {"_id": "1", "id": repo.name, "modelId": repo.name, "sha": repo.commit, "siblings": siblings, "tags": [],
                "private": False, "downloads": 0, "likes": 0}
        self.reply(200, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def file(self, repo, name):
        head = {"X-Repo-Commit": repo.commit, "Accept-Ranges": "bytes"}
        if name not in repo.files:
            return self.reply(404, {**head, "X-Error-Code": "EntryNotFound"})
        data, etag = repo.files[name], repo.etag(name)
        if len(data) >= LARGE:
            place = f"{self.server.hub.store_url}/{repo.name}/{name}?signed=1"
            if self.server.hub.faults.linked:
                head.update({"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(data))})
            return self.reply(302, {**head, "Location": place})
        if name in self.server.hub.faults.wrong:
            data = bytes([data[0] ^ 1]) + data[1:]
        self.reply(200, {**head, "ETag": f'"{etag}"'}, data)


class Store(Handler):
    """Where large files are: another host for the token."""

    def do_GET(self):
        hub, f = self.server.hub, self.server.hub.faults
        self.note("/store")
        _, org, model, name = urllib.parse.urlsplit(self.path).path.split("/", 3)
        data = hub.repos[org + "/" + model].files[name]
        if name in f.wrong:
            data = data[:-1] + bytes([data[-1] ^ 1])
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) if not f.no_range else None
        begin = int(asked.group(1)) if asked else 0
        if begin >= len(data):
            return self.reply(416)
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        if self.command == "HEAD":
            return
        cut = f.cut_after if hub.take("cut") else None
        self.send_body(data[begin:] if cut is None else data[begin:begin + cut], cut is not None)

    def send_body(self, data, cut):
        hub = self.server.hub
        try:
            for at in range(0, len(data), hub.faults.piece):
                self.wfile.write(data[at:at + hub.faults.piece])
                with hub.lock:
                    hub.sent += min(hub.faults.piece, len(data) - at)
                if hub.faults.slow:
                    time.sleep(hub.faults.slow)
        except OSError:
            self.close_connection = True
        if cut:
            self.close_connection = True
            try:
                self.connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def read_folder(path):
    """{name: bytes} of the files of a folder, for a Repo."""
    out = {}
    for name in sorted(os.listdir(path)):
        if os.path.isfile(os.path.join(path, name)):
            with open(os.path.join(path, name), "rb") as f:
                out[name] = f.read()
    return out


def make_certificate(path):
    """A key and a certificate for 127.0.0.1, signed by itself; False without openssl."""
    try:
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
                               "subjectAltName=IP:127.0.0.1", "-keyout", path + ".key", "-out", path], capture_output=True, text=True)
    except FileNotFoundError:
        return False
    assert made.returncode == 0, made.stderr
    with open(path + ".key") as key, open(path, "a") as out:
        out.write(key.read())
    return True


if __name__ == "__main__":
    with Hub([Repo(sys.argv[1], read_folder(sys.argv[2]))], *sys.argv[3:]) as served:
        print(served.url, flush=True)
        sys.stdin.read()
