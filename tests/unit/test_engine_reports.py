"""What an engine reports while it pulls, pushes or loads an image, by the real client: lines, half a line, silence."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import Mock

import docker
import pytest
from click.testing import CliRunner

from scripts import pins
from scripts.commands.line import command_line
from scripts.errors import KitError
from scripts.images import build, registry, restoring, verify
from tests.unit.test_restoring import manifest, members
from tests.unit.test_verify import right

IMAGE = pins.load().image("int8", "current")
DIGEST = f"sha256:{'a' * 64}"


class _Engine(BaseHTTPRequestHandler):
    """Reports what the test says in chunks, and breaks off behind the last one where `whole` is not set. It has no image."""

    protocol_version = "HTTP/1.1"
    reports: tuple[bytes, ...] = ()
    whole = True

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        while self.headers.get("Transfer-Encoding") and (size := int(self.rfile.readline(), 16)):
            self.rfile.read(size + 2)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for report in self.reports:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(report), report))
        self.wfile.write(b"0\r\n\r\n" if self.whole else b"40\r\nhalf")
        self.close_connection = True

    def do_GET(self) -> None:
        body = b'{"message": "No such image"}'
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def engine() -> Iterator[Callable[..., docker.DockerClient]]:
    """Call it with what an engine reports, and get a client of that engine."""
    servers = []

    def start(*reports: bytes, whole: bool = True) -> docker.DockerClient:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Engine", (_Engine,), {"reports": reports, "whole": whole}))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return docker.DockerClient(base_url=f"tcp://127.0.0.1:{server.server_address[1]}", version="1.44", timeout=5)

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def load(client: docker.DockerClient, folder: Path) -> None:
    restoring._load(client, [members(folder / "a.oci.tar.zst", ("manifest.json", manifest(IMAGE.tag)))])


def pull(client: docker.DockerClient, folder: Path) -> None:
    registry._pulled(client, IMAGE, "localhost:5000/kit", DIGEST)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("does", "words"), [(load, "the engine does not load .*type make restore again"), (pull, "cannot be pulled: .*type make pull again")])
@pytest.mark.parametrize("reports", [((b'{"status": "begun"}\n',), False), ((b"{no JSON}\n",), True)], ids=["ends", "is no JSON"])
def test_an_engine_that_breaks_off_is_one_line(engine, tmp_path: Path, does, words: str, reports) -> None:
    with pytest.raises(KitError, match=words):
        does(engine(*reports[0], whole=reports[1]), tmp_path)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("does", [load, pull])
def test_what_an_engine_complains_of_in_the_middle_is_told(engine, tmp_path: Path, does) -> None:
    with pytest.raises(KitError, match="verification failed for digest sha256:0;"):
        does(engine(b'{"error": "filesystem layer verification failed for digest sha256:0 "}\n'), tmp_path)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([{"error": "denied "}], "localhost:5000/kit refused .*: denied; type docker login localhost:5000"),
        ([{"status": "pushed"}], "localhost:5000/kit returned no digest for .*; type make push again"),
    ],
    ids=["refused", "no digest"],
)
def test_a_registry_that_keeps_no_image_is_one_line(lines: list[dict], words: str) -> None:
    client = Mock()
    client.api.push.return_value = iter(lines)
    with pytest.raises(KitError, match=words):
        registry._pushed(client, IMAGE, "localhost:5000/kit")


class _Failing(BaseHTTPRequestHandler):
    """Says which Docker it is, and to all else what the test says; with None it breaks off."""

    says: tuple[int, bytes] | None = None

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        answer = (200, b'{"ApiVersion": "1.44"}') if self.path.endswith("/version") else self.says
        if answer:
            self.send_response(answer[0])
            self.end_headers()
            self.wfile.write(answer[1])

    do_POST = do_DELETE = do_GET


@pytest.mark.parametrize(
    "words",
    [
        ["images"],
        ["build", "int8"],
        ["verify", "int8"],
        ["sbom", "int8"],
        ["archive", "--only", "images"],
        ["push", "--registry", "localhost:5000/kit"],
    ],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize(
    ("says", "line"),
    [
        ((500, b'{"message": "layer does not exist"}'), "^Docker failed during make {}: layer does not exist; type the same again, or see its log$"),
        (None, "^the container engine stopped answering during make {}. Start it again and type the same command$"),
    ],
    ids=["fails", "breaks off"],
)
def test_a_docker_that_fails_during_a_verb_of_images_is_one_line(monkeypatch, tmp_path: Path, words: list[str], says, line: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Failing", (_Failing,), {"says": says}))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("ARCHIVES", str(tmp_path))
    try:
        with pytest.raises(KitError, match=line.format(words[0])):
            CliRunner().invoke(command_line, words, catch_exceptions=False)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("text", ["<<<<<<< HEAD\n{}", "[]", '{"TAG": 1}', '{"TAG": "latest"}', f'{{"TAG": "{DIGEST}\\n"}}', "[" * 100_000])
def test_a_file_of_digests_that_holds_anything_else_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "digests.json"
    path.write_text(text.replace("TAG", IMAGE.tag))
    with pytest.raises(KitError, match="digests.json is damaged .*; type git checkout"):
        registry.reference(IMAGE, "localhost:5000/kit", path)


@pytest.mark.parametrize(
    "answer", ["[]", "[" * 100_000, "", *(json.dumps(right(IMAGE) | {key: 1}) for key in ("packages", "altered", "kernels", "unowned", "python"))]
)
def test_an_image_that_answers_something_else_differs(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(build, "output_of", lambda client, name, command: answer if command[0] == "python3" else "")
    client = Mock()
    client.images.get.return_value = Mock(attrs={"Config": {"Env": []}}, history=lambda: [])
    (line,) = verify.check_foreign(client, IMAGE)
    assert line.startswith("does not say what it holds: ")
