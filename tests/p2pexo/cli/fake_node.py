"""Plays a node for the demo's tests: HTTP of the standard library, a scripted cluster, no model.

Usage: fake_node.py BEHAVIOUR NAME PORT HOME. Ends on SIGTERM, and when stdin ends.
"""

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BEHAVIOUR, NAME, PORT, HOME = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
placed = threading.Event()


def member(number):
    return {
        "peer": f"peer-{number}",
        "name": f"node-{number}",
        "state": "alive",
        "is_leader": number == 1,
        "is_me": number == 1,
        "machine": "a fake",
        "version": "0",
        "device": "cpu",
        "memory_total": 8,
        "memory_free": 4,
        "memory_budget": 6,
        "memory_reserved": 0,
        "api_url": "",
        "addresses": [],
        "models": [],
    }


def stage(rank, phase):
    reason = "no memory left" if phase == "failed" else ""
    views = {"rank": rank, "peer": f"peer-{rank + 1}", "node": f"node-{rank + 1}", "phase": phase, "reason": reason}
    views |= {"first_layer": 10 * rank, "end_layer": 10 * rank + 10, "progress": 1.0, "weight_bytes": 40_000_000}
    return views | {"resident_bytes": 160_000_000, "endpoint": f"127.0.0.1:4000{rank}", "link": "tls", "compute": "cpu"}


def cluster():
    state = "failed" if BEHAVIOUR == "load-fails" else "ready"
    placement = {
        "id": "p1",
        "model": "m",
        "revision": "r",
        "epoch": "1.1.x",
        "state": state,
        "reason": "",
        "by_user": True,
        "stages": [stage(rank, state) for rank in range(3)],
    }
    return {
        "cluster": os.environ["P2PEXO_CLUSTER"],
        "me": "peer-1",
        "leader": "peer-1",
        "term": 1,
        "open": False,
        "members": [member(number) for number in (1, 2, 3)],
        "placements": [placement] if placed.is_set() else [],
        "warnings": [],
    }


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply(cluster())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/placements":
            placed.set()
            self.reply({"id": "p1"})
        else:
            self.answer()

    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b": the model is warming up\n\n")
        for word in ("Paris", " it", " is."):
            self.event({"choices": [{"index": 0, "delta": {"content": word}}]})
        if BEHAVIOUR == "hangs":
            threading.Event().wait()
        if BEHAVIOUR == "answer-fails":
            self.event({"error": {"message": "a stage went away"}})
        elif BEHAVIOUR != "answer-breaks-off":
            self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            self.event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}})
            self.wfile.write(b"data: [DONE]\n\n")

    def event(self, value):
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")

    def log_message(self, format, *args):
        print("request", format % args, flush=True)


def end_with_stdin():
    sys.stdin.read()
    os._exit(0)


print("hello from", NAME, flush=True)
if BEHAVIOUR == "dies":
    sys.exit(f"{NAME} has no key")
(HOME / "environment.json").write_text(json.dumps(dict(os.environ)))
if BEHAVIOUR == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=end_with_stdin, daemon=True).start()
ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
