"""A guest that measures nothing: it answers every kind of job in milliseconds, honestly or in any bad manner.

It stands in for `python -m bench JOB RESULT`. On the host an interpreter in name starts it; in a container it is bench/__main__.py. Its
manners stand in a file, a line for each kind of job; a kind without a line gets an honest answer:

    measure: write=half print=flood leave=daemon end=SIGSEGV rank=1

`write` is the answer that it leaves (WRITING), `print` its output (PRINTING), `leave` what else it leaves (LEAVING), `end` how it ends
(ENDING). With two ranks the rank named `rank` ends so while the others wait for it in a collective. It runs under Python 3.8.
"""

import hashlib
import json
import os
import random
import signal
import socket
import sys
import time

MANNERS = "manners.txt"

#: The smallest archive of arrays: an empty one.
EMPTY_NPZ = "PK\x05\x06" + 18 * "\0"

#: Ways to leave an answer and to end after which a row may say ok.
HONEST_WRITING, HONEST_ENDING = ("good",), ("exit-0", "closes-output")


def parse_manners(text):
    """{kind of job: {word: value}} of a file of manners."""
    lines = [line.partition(":") for line in text.splitlines() if line.strip()]
    return {kind.strip(): dict(word.split("=", 1) for word in words.split()) for kind, _, words in lines}


def honest_ms(run_id, new_tokens):
    """The time that an honest answer gives each call of a run: the oracle knows it too, so a row with another time is false."""
    return 0.001 + int(hashlib.sha256(f"{run_id} {new_tokens}".encode()).hexdigest()[:4], 16) / 1e7


def good(job):
    """An honest answer."""
    answer = {"schema": 2, "id": job["id"], "status": "ok", "memory": {"devices": []}, "used": {}}
    if job["kind"] == "judge":
        answer["check"] = {"passed": True, "reason": ""}
    if job["kind"] != "measure":
        return answer
    answer["batch_size"] = job["prompt"]["batch_size"]
    answer["measurements"] = [
        {
            "new_tokens": run["new_tokens"],
            "cold_ms": None,
            "warmup_ms": [honest_ms(job["id"], run["new_tokens"])] * job["warmup_runs"],
            "timed_ms": [honest_ms(job["id"], run["new_tokens"])] * job["timed_runs"],
        }
        for run in job["runs"]
    ]
    answer["check"] = {"passed": True, "reason": "", "logits_relative_error": 0.0, "tolerance": job["tolerance"]}
    return answer


def false(job, **changes):
    """A good answer with the time of every call a thousand times too long, and these changes: no row may show it."""
    answer = dict(good(job), **changes)
    for calls in answer.get("measurements", ()):
        calls["timed_ms"] = [ms * 1000 for ms in calls["timed_ms"]]
    return answer


def put(path, text):
    with open(path, "w") as stream:
        stream.write(text)


def put_whole(path, text):
    put(path + ".part", text)
    os.replace(path + ".part", path)


def fewer_calls(job):
    answer = good(job)
    for calls in answer.get("measurements", ()):
        calls["timed_ms"] = calls["timed_ms"][1:] or [1e9]
    return answer


#: How an answer is left at `path`. Only `good` is an answer.
WRITING = {
    "good": lambda job, path: put_whole(path, json.dumps(good(job))),
    "nothing": lambda job, path: None,
    "empty": lambda job, path: put(path, ""),
    "half": lambda job, path: put(path, json.dumps(false(job))[:-40]),
    "deep": lambda job, path: put(path, "[" * 200000),
    "no-json": lambda job, path: put(path, "\0" * 5000),
    "huge-number": lambda job, path: put(path, json.dumps(false(job)).replace('"schema": 2', '"schema": 2, "load_s": 1e400')),
    "no-number": lambda job, path: put(path, json.dumps(false(job, load_s=float("nan")))),
    "other-run": lambda job, path: put(path, json.dumps(false(job, id="another"))),
    "other-schema": lambda job, path: put(path, json.dumps(false(job, schema=99))),
    "unknown-field": lambda job, path: put(path, json.dumps(false(job, verdict="holds"))),
    "unknown-status": lambda job, path: put(path, json.dumps(false(job, status="splendid"))),
    "longer-than-it-lived": lambda job, path: put(path, json.dumps(false(job, load_s=1e9))),
    "negative-time": lambda job, path: put(path, json.dumps(false(job, load_s=-1.0))),
    "fewer-calls": lambda job, path: put(path, json.dumps(fewer_calls(job))),
    "failed": lambda job, path: put(path, json.dumps(false(job, status="failed", reason="a\x1b[2J\nb" + "x" * 50000))),
    "link": lambda job, path: os.symlink("/etc/hostname", path),
    "hard-link": lambda job, path: (put(path + ".other", json.dumps(false(job))), os.link(path + ".other", path)),
    "pipe": lambda job, path: os.mkfifo(path),
    "folder": lambda job, path: os.mkdir(path),
    "endless": lambda job, path: (put(path, ""), os.truncate(path, 3 << 30)),
}


def flood():
    for number in range(40000):
        print("line {} of a flood {}".format(number, "x" * 100))


#: What else it prints.
PRINTING = {
    "nothing": lambda: None,
    "events": lambda: [print("@" + json.dumps({"phase": "measure", "done": number, "total": 9})) for number in range(10)],
    "nonsense": lambda: print('@{"phase": 5}', "@{", '@{"run": ["x"], "total": 1}', "@" + json.dumps({"phase": "x" * 1000000}), sep="\n"),
    "flood": flood,
    "endless-line": lambda: [sys.stdout.write("x" * 1000000) for _ in range(20)],
    "escapes": lambda: print("\x1b[2J\x1b[31m\r\x07"),
    "bytes": lambda: os.write(1, bytes(range(256)) * 1000),
}


def daemon():
    """A process without a parent, with a session of its own, deaf to gentle signals, that holds the output open."""
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(600)
        os._exit(0)


def deep_folders():
    for _ in range(800):
        os.mkdir("d")
        os.chdir("d")


#: What else it leaves in its folder, where it stands.
LEAVING = {
    "nothing": lambda: None,
    "daemon": daemon,
    "links": lambda: [os.symlink("/etc/hostname", name) for name in ("trace.json.gz", "outputs.jsonl", "profile.nsys-rep")],
    "deep-folders": deep_folders,
    "many-files": lambda: [put(f"file-{number}", "") for number in range(2000)],
    "read-only-folder": lambda: (os.mkdir("closed"), put("closed/file", ""), os.chmod("closed", 0)),
    "odd-names": lambda: [put(name, "") for name in ("-rf", "a\nb", "\x1b[2J", " ")],
}


def by_signal(name):
    return lambda: (os.kill(os.getpid(), getattr(signal, name)), time.sleep(600))


def hang():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(600)


def eat():
    """Take memory until somebody ends it."""
    eaten = []
    while True:
        eaten.append(bytearray(random.getrandbits(8) for _ in range(4096)) * 4096)


def kill_parent():
    """End the process that watches it, which on the host is the kit's own."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


#: How it ends.
ENDING = {
    "exit-0": lambda: None,
    "exit-3": lambda: os._exit(3),
    "closes-output": lambda: (os.close(1), os.close(2), time.sleep(0.3), os._exit(0)),
    "SIGSEGV": by_signal("SIGSEGV"),
    "SIGKILL": by_signal("SIGKILL"),
    "SIGABRT": by_signal("SIGABRT"),
    "SIGTERM": by_signal("SIGTERM"),
    "SIGSTOP": by_signal("SIGSTOP"),
    "hang": hang,
    "kill-parent": kill_parent,
    "eat": eat,
}


def helping(job, folder):
    """What the host waits for from a job that is no measurement, and the tokens that a measuring job leaves for the judge."""
    if job["kind"] == "weights":
        put(os.path.join(job["model"]["path"], "config.json"), "{}")
        put(os.path.join(job["model"]["path"], "model.safetensors"), "weights")
    elif job["kind"] in ("reference", "judge"):
        put(job["reference"], EMPTY_NPZ)
    elif job["kind"] == "measure":
        runs = [{"new_tokens": calls["new_tokens"], "timed_ms": calls["timed_ms"]} for calls in good(job)["measurements"]]
        told = {"greedy": True, "rows": job["prompt"]["batch_size"], "stop_tokens": [], "runs": runs}
        put(os.path.join(folder, "tokens.json"), json.dumps(told))
        put(os.path.join(folder, "logits.npz"), "npz")


def collective(rank):
    """All ranks wait for each other, as in a collective: a rank that never comes keeps the others waiting."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank:
        for _ in range(600):
            try:
                with socket.create_connection(address) as group:
                    group.recv(1)
                    return
            except OSError:
                time.sleep(0.05)
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(address)
        door.listen()
        others = [door.accept()[0] for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
        for other in others:
            other.sendall(b".")
            other.close()


def answer(job, path, manners):
    """Do a job in its manners; the process may end in it."""
    rank, folder = int(os.environ.get("RANK", "0")), os.path.dirname(os.path.abspath(path))
    bad = rank == int(manners.get("rank", "0"))
    if bad:
        PRINTING[manners.get("print", "nothing")]()
        sys.stdout.flush()
    time.sleep(float(manners.get("pause_s", "0.05")))
    ending = ENDING[manners.get("end", "exit-0") if bad else "exit-0"]
    if "RANK" in os.environ:
        if bad:
            ending()
        collective(rank)
    if rank == 0:
        helping(job, folder)
        WRITING[manners.get("write", "good")](job, path)
    if bad:
        os.chdir(folder)
        LEAVING[manners.get("leave", "nothing")]()
        ending()


def main(job_path, path):
    with open(job_path) as stream:
        job = json.load(stream)
    place = os.path.join(os.environ.get("GUEST_FOLDER", "/models"), MANNERS)
    manners = {}
    if os.path.exists(place):
        with open(place) as stream:
            manners = parse_manners(stream.read()).get(job["kind"], {})
    if job["kind"] == "measure" and job["backend"] == "tensor-parallel" and job["device_count"] > 1 and "RANK" not in os.environ:
        sys.path.insert(0, os.getcwd())
        from bench.measuring import ranks

        sys.executable = os.environ.get("GUEST_PYTHON", sys.executable)
        return ranks.start(job["device_count"], job_path, path)
    answer(job, path, manners)
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "-c":  # the host asks whether torch is there
        sys.exit(0)
    sys.exit(main(*sys.argv[-2:]))
