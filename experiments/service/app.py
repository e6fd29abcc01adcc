"""A policy behind HTTP: FastAPI around `raglab.apply`, started on this machine, or measured.

    pip install --no-deps raglab-toolkit -r requirements-service.txt; pip install fastapi uvicorn
    python experiments/service/app.py [POLICY] [--port 8000] [--measure]

POST /decide with {"hits": [{"query": …, "hit_id": …, "node_score": …}, …]} answers {"decisions": […]}, an object a
question with the columns of `raglab.apply`. The score is a probability under the name node_score, as `SIGNALS` says and
policy.yaml gates it; a system with cosines has a column `score` instead.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

import pandas as pd
from fastapi import FastAPI, HTTPException, Request

import raglab

SIGNALS = {"node_score": {"higher": "surer", "unit": "probability"}}
MAX_BYTES = 8 * 2**20  # of a request: what is longer is refused before it is parsed
COLUMNS = ("case_id", "query", "hit_id", "text", "source", "page", "node_score")
HEAVY = ("torch", "transformers", "matplotlib", "mlflow", "sklearn", "scipy")
HOST = "127.0.0.1"


def application(policy: raglab.Policy) -> FastAPI:
    """Service that decides by one policy."""
    app = FastAPI(title="raglab", docs_url=None, redoc_url=None)

    @app.post("/decide")
    async def decide(request: Request) -> dict[str, Any]:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_BYTES:
                raise HTTPException(413, f"a request must have at most {MAX_BYTES} bytes; send fewer questions")
        return {"decisions": _decisions(policy, body)}

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"policy_id": policy.policy_id}

    return app


def _decisions(policy: raglab.Policy, body: bytes) -> list[dict[str, Any]]:
    """Decisions on the hits of a request; 422 with rule, value and remedy where they break a rule."""
    try:
        hits = json.loads(body)["hits"]
        if not isinstance(hits, list) or not all(isinstance(hit, dict) and set(hit) <= set(COLUMNS) for hit in hits):
            raise HTTPException(422, f"hits must be a list of objects with {', '.join(COLUMNS)}")
        frame = pd.DataFrame(hits, columns=[column for column in COLUMNS if any(column in hit for hit in hits)])
        return raglab.apply(policy, frame, score=None, signals=SIGNALS).to_dict("records")
    except (KeyError, TypeError, ValueError, RecursionError) as error:  # InputError is a ValueError
        raise HTTPException(422, str(error)) from error


def questions(n: int) -> bytes:
    """Request of n questions with two hits each."""
    hits = [
        {"query": f"what is the excess of item {place}?", "hit_id": f"{place}-{hit}", "node_score": 0.9 - hit / 2}
        for place in range(n)
        for hit in range(2)
    ]
    return json.dumps({"hits": hits}).encode()


def measure(port: int) -> None:
    """Print milliseconds of a request over one connection, median and 95th percentile, and of the processor."""
    link = HTTPConnection(HOST, port, timeout=60)
    for n, repeats in ((1, 200), (100, 50), (1_000, 20)):
        body, taken, busy = questions(n), [], process_time()
        for _ in range(repeats):
            start = perf_counter()
            link.request("POST", "/decide", body)
            answer = link.getresponse()
            told = json.loads(answer.read())
            taken.append((perf_counter() - start) * 1e3)
            if answer.status != HTTPStatus.OK or len(told["decisions"]) != n:
                sys.exit(f"the service answered {answer.status}: {told}")
        shown = pd.Series(taken).quantile([0.5, 0.95]).tolist()
        each = (process_time() - busy) * 1e3 / repeats / n
        print(f"{n} questions: {shown[0]:.1f} ms, 95 % within {shown[1]:.1f}; {each:.2f} ms of processor a decision")


def main() -> None:
    """Serve a policy, or measure a server of it."""
    import uvicorn

    parser = argparse.ArgumentParser(description="A policy behind HTTP.")
    parser.add_argument("policy", type=Path, nargs="?", default=Path(__file__).with_name("policy.yaml"))
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--measure", action="store_true", help="start, ask, print what it took, stop")
    given = parser.parse_args()
    app, port = application(raglab.Policy.load(given.policy)), 0 if given.measure else given.port
    server = uvicorn.Server(uvicorn.Config(app, host=HOST, port=port, log_level="error"))
    if not given.measure:
        server.run()
        return
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        sleep(0.01)
    print(f"started after {process_time():.2f} s of processor time")
    try:
        measure(server.servers[0].sockets[0].getsockname()[1])
        print("imported beside", *([name for name in HEAVY if name in sys.modules] or ["nothing"]))
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
