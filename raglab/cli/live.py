"""Command line (shore): index, add, remove, ask, reply, signals."""

from __future__ import annotations

import json
import shlex
from os.path import realpath
from pathlib import Path
from typing import Annotated, Any

import typer

from raglab.cli.common import (
    AsJson,
    CorpusColumns,
    DenseWeight,
    Download,
    Encoder,
    FollowLinks,
    PolicyPath,
    Precision,
    Quiet,
    RequestId,
    Reranker,
    TextEncoding,
    TracePath,
    keep_inputs,
    load_policy,
    load_trace,
    read_corpus,
    say,
    say_json,
    say_notes,
    show,
    table_text,
)
from raglab.cli.door import one_line
from raglab.policy_parts.arms import LIVE_ARMS
from raglab.store.files import input_error
from raglab.words.canonical import decimals
from raglab.words.characters import visible

OPENAI_URL = "https://api.openai.com/v1"
Nli = Annotated[
    str | None,
    typer.Option("--nli", help="Cross-encoder: folder, NAME or NAME@REVISION. Default: embedded."),
]
Model = Annotated[
    str | None,
    typer.Option(help="Model of an OpenAI-compatible server, folder or .gguf. Default: extracts."),
]
ParseModel = Annotated[
    str | None,
    typer.Option("--parser", help="Model that reads questions with --clarify. Default: rules."),
]
BaseUrl = Annotated[
    str | None, typer.Option(help="Address of that server. Its key is in OPENAI_API_KEY.")
]
LiveArm = Annotated[
    str | None, typer.Option("--arm", help="Arm, router or bandit. Default: of the policy.")
]
Index = Annotated[Path, typer.Argument(help="Index, a folder made by `raglab index`.")]
AnswerCache = Annotated[
    bool, typer.Option("--cache/--no-cache", help="Store answers and retrievals in the folder.")
]
Explain = Annotated[bool, typer.Option(help="Show every gate, and the time of each stage.")]


def index(
    corpus: Annotated[
        Path,
        typer.Argument(help="Folder of documents or pictures; JSONL; SQuAD; BEIR folder."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the index.")],
    arm: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Arm that may answer: {', '.join(LIVE_ARMS)}. Repeatable. Default: all."
        ),
    ] = None,
    encoder: Encoder = None,
    reranker: Reranker = None,
    dense_weight: DenseWeight = 1.0,
    precision: Precision = "float32",
    kind: Annotated[
        str,
        typer.Option(
            "--index", help="flat (exact) or sqfp16 (on disk). auto: flat up to 100,000 chunks."
        ),
    ] = "auto",
    download: Download = False,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", "-p", help="Policy of the pack. Default: any pack."),
    ] = None,
    corpus_columns: CorpusColumns = None,
    encoding: TextEncoding = None,
    follow_links: FollowLinks = False,
    quiet: Quiet = False,  # noqa: ARG001 - read by its callback
    as_json: AsJson = False,
) -> None:
    """Index a corpus into a folder that `raglab ask` answers from."""
    from raglab.live.system import build_index
    from raglab.store.policies import Policy

    keep_inputs(out, corpus, policy, folder=True)
    # the index takes the folder's place
    for input_path in filter(None, (corpus, policy)):
        if Path(realpath(out)) in Path(realpath(input_path)).parents:
            raise input_error(
                out,
                "--out must be a folder of its own",
                "choose another path",
                f"one that holds {input_path}",
            )
    loaded_corpus = read_corpus(
        corpus, corpus_columns, encoder, encoding, download=download, follow_links=follow_links
    )
    index_options: dict[str, Any] = {
        "arms": arm or None,
        "encoder": encoder,
        "reranker": reranker,
        "dense_weight": dense_weight,
        "precision": precision,
        "index": kind,
        "download": download,
    }
    fingerprint = build_index(
        loaded_corpus, out, policy=None if policy is None else Policy.load(policy), **index_options
    )
    show(
        {"index": str(out), "chunks": len(loaded_corpus.chunks), "fingerprint": fingerprint},
        as_json=as_json,
    )


def ask(
    folder: Index,
    question: Annotated[str, typer.Argument(help="The question.")],
    policy: PolicyPath = None,
    select: Annotated[
        int | None,
        typer.Option(help="Chosen option of an ambiguous question, from 1."),
    ] = None,
    document: Annotated[
        list[str] | None,
        typer.Option(help="Path, path#page or file name to search in. Repeatable."),
    ] = None,
    arm: LiveArm = None,
    model: Model = None,
    parser: ParseModel = None,
    base_url: BaseUrl = None,
    nli: Nli = None,
    cache: AnswerCache = True,
    clarify: Annotated[
        bool | None,
        typer.Option(
            "--clarify/--no-clarify",
            help="Ask for what a vague question leaves out.",
        ),
    ] = None,
    session: Annotated[
        str,
        typer.Option(help="Session of the user, whose next question accepts this answer."),
    ] = "",
    explain: Explain = False,
    as_json: AsJson = False,
) -> None:
    """Answer a question from an index, refuse it, or ask back."""
    from raglab.live.ask import ask as ask_system
    from raglab.live.clarifier import clarifier_maker
    from raglab.live.system import System

    if clarify:
        clarifier_maker("--clarify")
    model_parts = _open_models(model, parser, base_url, nli)
    system = System.open(
        folder, policy=policy, arm=arm, cache=cache, clarify=clarify, **model_parts
    )
    response = ask_system(
        question, system=system, selected_option=select, documents=document, session=session
    )
    if as_json:
        say_json(json.loads(response.json()), indent=2)
        return
    say(_response_text(response, folder, policy))
    while response["clarification"] is not None and _on_terminal():
        response = _prompt_reply(response, system)
        say(_response_text(response, folder, policy))
    if explain:
        _print_checks(response)


def reply(
    folder: Index,
    request_id: RequestId,
    answer: Annotated[
        str,
        typer.Argument(help="yes, no, a value, its number, or words."),
    ],
    policy: PolicyPath = None,
    question: Annotated[
        str | None, typer.Option(help="The question, if the log keeps no text.")
    ] = None,
    arm: LiveArm = None,
    model: Model = None,
    parser: ParseModel = None,
    base_url: BaseUrl = None,
    nli: Nli = None,
    cache: AnswerCache = True,
    explain: Explain = False,
    as_json: AsJson = False,
) -> None:
    """Reply to a question of `raglab ask`, or correct a default that it applied."""
    from raglab.live.ask import reply as replied
    from raglab.live.clarifier import clarifier_maker
    from raglab.live.system import System

    clarifier_maker("raglab reply")
    model_parts = _open_models(model, parser, base_url, nli)
    system = System.open(folder, policy=policy, arm=arm, cache=cache, clarify=True, **model_parts)
    response = replied(request_id, answer, system=system, question=question)
    if as_json:
        say_json(json.loads(response.json()), indent=2)
        return
    say(_response_text(response, folder, policy))
    if explain:
        _print_checks(response)


def signals(
    path: TracePath,
    signal: Annotated[
        list[str],
        typer.Option("--signal", "-s", help="Signal of a package (entry point). Repeatable."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Trace to write.")],
    policy: PolicyPath = None,
    quiet: Quiet = False,  # noqa: ARG001 - read by its callback
    as_json: AsJson = False,
) -> None:
    """Measure signal functions over a trace and store them as columns.

    An interrupted run continues.
    """
    from raglab.live.measured_signals import add_signals

    keep_inputs(out, path, policy)
    measured_trace = add_signals(load_trace(path), signal, policy=load_policy(policy))
    measured_trace.save(out)
    show(
        {
            "trace": str(out),
            "signals": list(measured_trace.signals),
            "fingerprint": measured_trace.fingerprint,
        },
        as_json=as_json,
    )


# a response
def _response_text(response: Any, folder: Path, policy: Path | None) -> str:  # noqa: ANN401
    confidence = response["confidence"]
    head_parts = (
        response["status"],
        response["arm_reason"],
        "" if confidence is None else f"confidence {decimals(confidence)}",
        response["policy_id"],
    )
    response_lines = [visible(" · ".join(filter(None, head_parts)))]
    clarification = response["clarification"]
    applied_default = response["default_applied"]
    if clarification is not None:
        response_lines += [visible(clarification["question_to_user"])]
        for option in response["options"]:
            option_texts = dict.fromkeys((option["value"], option["text"]))  # each once
            response_lines += [visible(f"  {'  '.join(option_texts)}")]
        policy_arguments = [] if policy is None else ["-p", str(policy)]
        reply_command = ["raglab", "reply", str(folder), response["request_id"], *policy_arguments]
        response_lines += [visible(f"Reply with: {shlex.join(reply_command)} yes, no, or a value.")]
    elif response["status"] == "ambiguous":
        response_lines += ["Which of these do you mean? Ask again with --select ID."]
        response_lines += [
            visible(f"  {option['id']}  {', '.join(option['sources'])}: {option['text']} …")
            for option in response["options"]
        ]
    else:
        response_lines += [response["answer"]]
    if response["refusal_reason"]:
        response_lines += [visible(f"because {response['refusal_reason']}")]
    if response["sources"]:
        response_lines += ["sources: " + visible(", ".join(response["sources"]))]
    if response.record.propensity is not None or applied_default is not None:
        response_lines += [f"request: {response['request_id']}"]
    return "\n".join(
        [*response_lines, *(visible(f"warning: {warning}") for warning in response["warnings"])]
    )


def _print_checks(response: Any) -> None:  # noqa: ANN401 - a response
    import pandas as pd

    table = pd.DataFrame(response.record.checks)
    if len(table):
        say("\n" + table_text(table[["gate", "margin", "passes", "text"]]))
    say("")
    say_notes(
        [
            " · ".join(
                f"{name} {milliseconds:.1f} ms" for name, milliseconds in response.record.ms.items()
            )
        ]
    )


def _on_terminal() -> bool:
    """Whether a person can be asked."""
    import sys

    return sys.stdin.isatty() and sys.stdout.isatty()


def _prompt_reply(response: Any, system: Any) -> Any:  # noqa: ANN401 - responses and a system
    """Response to what the user types; a reply that is refused is asked for again."""
    from raglab.live.ask import reply as replied

    proposed_default = response["clarification"]["proposed_default"]
    while True:
        typed_reply = typer.prompt(
            "yes, no, or a value", default=None if proposed_default is None else "yes"
        )
        try:
            return replied(response["request_id"], typed_reply, system=system)
        except ValueError as error:
            say(f"raglab: {one_line(str(error))}", err=True)


def _open_models(
    model: str | None, parser: str | None, base_url: str | None, nli: str | None
) -> dict[str, Any]:
    """Generator, parser and scorer; None is the embedded one."""
    if model is None and parser is None and base_url is not None:
        message = f"base_url goes with a model, got {base_url} alone; add --model or --parser."
        raise ValueError(message)
    model_parts: dict[str, Any] = {"generator": None, "parser": None, "scorer": _scorer(nli)}
    if model is not None:
        from raglab.answering.generation import ModelGenerator

        model_parts["generator"] = ModelGenerator(_client(model, base_url))
    if parser is not None:
        from raglab.extension_points import extension

        model_parts["parser"] = extension("model_calls", "clarification", "--parser")(
            _client(parser, base_url)
        ).parser
    return model_parts


def _client(model: str, base_url: str | None) -> Any:  # noqa: ANN401 - a client
    """Model in this process where the name is a file or folder and no server is named.

    Else one of a server.
    """
    if base_url is None and Path(model).expanduser().exists():
        from raglab.answering.local_model import LocalModel

        return LocalModel(model)
    from raglab.answering.openai_client import OpenAIClient

    return OpenAIClient(model, base_url or OPENAI_URL)


def _scorer(model_name: str | None) -> Any:  # noqa: ANN401 - a scorer
    if model_name is None:
        return None
    from raglab.answering.support import NliScorer
    from raglab.models.loaders import load_nli

    return NliScorer(load_nli(model_name))


COMMANDS = (
    (index, "raglab index datasets/broker --out out/index"),
    (
        ask,
        "raglab ask out/index 'How soon must a claim be reported?' -p datasets/broker/policy.yaml",
    ),
    (reply, "raglab reply out/index REQUEST_ID yes"),
    (signals, "raglab signals out/broker.parquet --signal judge --out out/judged.parquet"),
)
