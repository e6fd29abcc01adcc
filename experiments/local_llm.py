"""Serve a local language model as an OpenAI-compatible server on 127.0.0.1, to try clients out.

    # MODEL: as for LocalModel; what `make local-llm` fetched
    python experiments/local_llm.py [MODEL] [--port 8017]

One request at a time: chats with log-probabilities and alternatives, and the list of models. A
reply is not held to a schema: `response_format` is refused with 400, as some servers do.
"""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from raglab import LocalModel, ModelUnavailableError

ROOT = Path(__file__).resolve().parents[1]
FETCHED = ROOT / "out" / "local_llm" / "SmolLM2-135M-Instruct.Q4_1.gguf"
LONGEST = 1_000_000  # bytes of a request


class ModelServer(ThreadingHTTPServer):
    """A server over one model."""

    daemon_threads = True

    def __init__(self, model: LocalModel, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.model = model
        self.base_url = f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: ModelServer

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        """The list of models."""
        row = {
            "id": "local",
            "object": "model",
            "meta": {"n_ctx_train": self.server.model.load().context},
        }
        self.reply(200, {"object": "list", "data": [row]})

    def do_POST(self) -> None:
        """A chat."""
        try:
            body = json.loads(self.rfile.read(min(int(self.headers["Content-Length"]), LONGEST)))
            self.reply(200, self.chat(body))
        except ModelUnavailableError as error:
            self.reply(400, {"error": {"message": str(error)}})
        except (KeyError, ValueError, TypeError) as error:
            self.reply(400, {"error": {"message": f"{type(error).__name__}: {error}"}})

    def reply(self, status: int, value: object) -> None:
        """Send JSON."""
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        """Reply to messages."""
        if "response_format" in body:
            msg = "response_format is not supported"
            raise ValueError(msg)
        model = LocalModel(
            self.server.model.name_or_folder, temperature=float(body.get("temperature", 0.0))
        )
        # the same weights at another temperature
        model._loaded.extend(self.server.model._loaded)  # noqa: SLF001
        top = int(body.get("top_logprobs") or 0) if body.get("logprobs") else 0
        completion = model.complete(
            body["messages"],
            max_tokens=int(body.get("max_tokens", 256)),
            seed=int(body.get("seed", 0)),
            top=top,
        )
        choice: dict[str, Any] = {"index": 0, "finish_reason": completion.finish}
        choice["message"] = {"role": "assistant", "content": completion.text}
        if body.get("logprobs"):
            content = []
            for token in completion.tokens:
                alternatives = [{"token": text, "logprob": value} for text, value in token.top]
                content.append(
                    {"token": token.token, "logprob": token.logprob, "top_logprobs": alternatives}
                )
            choice["logprobs"] = {"content": content}
        usage = {
            "prompt_tokens": completion.prompt_tokens,
            "completion_tokens": completion.completion_tokens,
        }
        return {"object": "chat.completion", "model": "local", "choices": [choice], "usage": usage}


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=str(FETCHED))
    parser.add_argument("--port", type=int, default=8017)
    arguments = parser.parse_args()
    model = LocalModel(arguments.model)
    model.load()
    with ModelServer(model, arguments.port) as server:
        print(f"serving {model.name} at {server.base_url}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
