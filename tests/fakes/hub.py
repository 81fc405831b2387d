"""A hub of models on this machine, which speaks to the real client and can be made to misbehave."""

import contextlib
import dataclasses
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclasses.dataclass
class Hub:
    """Its models, what went wrong on purpose, and what was asked of it.

    commits     {name: {commit: {file: content}}}; the last commit is what `main` names
    large       files from so many bytes have a sha256, as in git's large file storage; others have git's own digest
    fail        statuses, with headers, that the next requests get in place of an answer
    cut_after   {file: bytes}: the connection breaks there, once
    stall_after {file: bytes}: nothing more comes there, once
    altered     {file: content}: what is served in place of the file, as often as its number says
    gated       the token that a file needs
    no_ranges   does it send whole files, whatever part is asked for?
    storage     another hub, whose address large files are served from
    """

    commits: dict[str, dict[str, dict[str, bytes]]] = dataclasses.field(default_factory=dict)
    large: int = 1000
    fail: list[tuple[int, dict[str, str]]] = dataclasses.field(default_factory=list)
    cut_after: dict[str, int] = dataclasses.field(default_factory=dict)
    stall_after: dict[str, int] = dataclasses.field(default_factory=dict)
    altered: dict[str, tuple[bytes, int]] = dataclasses.field(default_factory=dict)
    gated: str = ""
    no_ranges: bool = False
    storage: "Hub | None" = None
    requests: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    tokens: set[str] = dataclasses.field(default_factory=set)
    served_bytes: dict[str, int] = dataclasses.field(default_factory=dict)
    endpoint: str = ""

    def ranges_of(self, file: str) -> list[str]:
        """The Range of each request for a file, "" for the whole of it."""
        return [part for path, part in self.requests if path.endswith(f"/{file}")]

    def add(self, name: str, commit: str, files: dict[str, bytes]) -> None:
        self.commits.setdefault(name, {})[commit] = files

    def describe(self, name: str, revision: str) -> dict | None:
        """What the client's `model_info` gets of a commit, or of `main`."""
        commits = self.commits[name]
        commit = list(commits)[-1] if revision == "main" else revision
        if commit not in commits:
            return None
        siblings = [self._sibling(file, content) for file, content in commits[commit].items()]
        return {"id": name, "sha": commit, "private": False, "tags": [], "downloads": 0, "likes": 0, "siblings": siblings}

    def _sibling(self, file: str, content: bytes) -> dict:
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        lfs = {"lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}}
        return {"rfilename": file, "size": len(content), "blobId": blob} | (lfs if len(content) >= self.large else {})


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each body would wait 40 ms behind its headers

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # a client that was killed
            super().handle()

    def do_GET(self) -> None:
        hub, path = self.hub, self.path.partition("?")[0]
        if not path.startswith("/api/models/") and "/resolve/" not in path:
            return self._refuse(404, {})  # what the client asks for its own ends
        hub.requests.append((path, self.headers.get("Range", "")))
        if hub.fail:
            return self._refuse(*hub.fail.pop(0))
        if path.startswith("/api/models/"):
            name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            return self._information(name, revision)
        name, _, rest = path.lstrip("/").partition("/resolve/")
        return self._file(name, *rest.split("/", 1))

    def _information(self, name: str, revision: str) -> None:
        if name not in self.hub.commits:
            return self._refuse(401, {"X-Error-Code": "RepoNotFound"})
        described = self.hub.describe(name, revision)
        if not described:
            return self._refuse(404, {"X-Error-Code": "RevisionNotFound"})
        return self._answer(json.dumps(described).encode())

    def _file(self, name: str, commit: str, file: str) -> None:
        hub = self.hub
        sent_token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        hub.tokens.add(sent_token)
        if hub.gated and sent_token != hub.gated:
            return self._refuse(403 if sent_token else 401, {"X-Error-Code": "GatedRepo"})
        content = hub.commits[name][commit][file]
        if hub.storage and len(content) >= hub.large:
            return self._refuse(302, {"Location": f"{hub.storage.endpoint}{self.path}"})
        if file in hub.altered:
            content, times = hub.altered[file]
            hub.altered[file] = (content, times - 1)
            if times == 1:
                del hub.altered[file]
        asked = "" if hub.no_ranges else self.headers.get("Range", "")
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        return self._answer(content[start:], file, 206 if asked else 200)

    def _answer(self, body: bytes, file: str = "", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut, stall = self.hub.cut_after.pop(file, None), self.hub.stall_after.pop(file, None)
        part = body[: cut or stall] if cut or stall else body
        self.hub.served_bytes[file] = self.hub.served_bytes.get(file, 0) + len(part)
        with contextlib.suppress(ConnectionError):
            self.wfile.write(part)
            self.wfile.flush()
            if stall:
                time.sleep(30)
        if cut or stall:
            self.close_connection = True

    def _refuse(self, status: int, headers: dict[str, str]) -> None:
        body = json.dumps({"error": "refused"}).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def running(address: str = "127.0.0.1") -> Iterator[Hub]:
    """A hub on a free port, in a thread of its own."""
    hub = Hub()
    server = ThreadingHTTPServer((address, 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.endpoint = f"http://{address}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.socket.close()
