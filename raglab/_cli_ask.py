"""Commands of the live system: index a corpus, ask it, check an answer against evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from raglab._cli import AsJson, Encoder, PolicyPath, Reranker, records, refusals, show

OPENAI = "https://api.openai.com/v1"
Nli = Annotated[
    str | None, typer.Option("--nli", help="NLI cross-encoder by name or path; the embedded scorer where not given.")
]


def index(
    corpus: Annotated[
        Path, typer.Argument(help="Folder of Markdown, text, CSV or PDF; JSONL; SQuAD 2.0; BEIR folder.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the index.")],
    arm: Annotated[
        list[str] | None, typer.Option(help="Arm that may answer; repeat. hybrid, iterative, graph, table where none.")
    ] = None,
    encoder: Encoder = None,
    reranker: Reranker = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")] = False,
    as_json: AsJson = False,
) -> None:
    """Index a corpus into a folder that `raglab ask` answers from."""
    from raglab.lab.live import LIVE_ARMS, build_index
    from raglab.store.corpus import load_corpus

    with refusals():
        loaded = load_corpus(corpus)
        arms = tuple(arm or LIVE_ARMS)
        made = build_index(loaded, out, arms=arms, encoder=encoder, reranker=reranker, progress=not quiet)
        show({"index": str(out), "chunks": len(loaded.chunks), "fingerprint": made}, as_json=as_json)


def ask(
    folder: Annotated[Path, typer.Argument(help="Index, a folder made by `raglab index`.")],
    question: Annotated[str, typer.Argument(help="The question.")],
    policy: PolicyPath = None,
    select: Annotated[int | None, typer.Option(help="Option chosen where the question was ambiguous, from 1.")] = None,
    document: Annotated[
        list[str] | None, typer.Option(help="Document that the search keeps to, file or file#page; repeat.")
    ] = None,
    arm: Annotated[
        str | None, typer.Option(help="Arm that answers, router or bandit; the policy's where not given.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model of an OpenAI-compatible server; extractive where not given.")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="Address of that server; its key is in OPENAI_API_KEY.")] = None,
    nli: Nli = None,
    cache: Annotated[bool, typer.Option(help="Keep answers and retrievals in the folder.")] = True,
    explain: Annotated[bool, typer.Option(help="Show every gate with its numbers, and the time by stage.")] = False,
    as_json: AsJson = False,
) -> None:
    """Answer a question from an index, refuse it, or ask back."""
    from raglab.lab.live import Lab
    from raglab.lab.session import ask as asked

    with refusals():
        system = Lab.open(
            folder, policy=policy, generator=_generator(model, base_url), scorer=_scorer(nli), arm=arm, cache=cache
        )
        said = asked(question, lab=system, selected_option=select, documents=document)
        if as_json:
            typer.echo(said.json())
            return
        typer.echo(_told(said))
        if explain:
            import pandas as pd

            table = pd.DataFrame(said.seen.checks)
            if len(table):
                typer.echo("\n" + table[["gate", "rule", "margin", "passes", "text"]].to_string(index=False))
            typer.echo("\n" + " · ".join(f"{stage} {ms:.1f} ms" for stage, ms in said.seen.ms.items()))


def support(
    answer: Annotated[str, typer.Argument(help="Answer to check; @FILE reads a file, - the standard input.")],
    evidence: Annotated[list[str], typer.Option("--evidence", "-e", help="Passage, or @FILE; repeat.")],
    nli: Nli = None,
    as_json: AsJson = False,
) -> None:
    """Score every claim of an answer, from wherever it comes, against evidence."""
    import pandas as pd

    from raglab.answering.support import WordSupport
    from raglab.store.policies import Policy

    with refusals():
        said = (_scorer(nli) or WordSupport()).support(_text(answer), [_text(one) for one in evidence])
        table = pd.DataFrame(said.by_claim, columns=["claim", "support"])
        least = Policy.load().support.min_support
        if as_json:
            score = said.score if len(table) else None
            told = {"support": score, "weakest": said.claim, "claims": records(table)}
            typer.echo(json.dumps(told, ensure_ascii=False))
            return
        if not len(table):
            typer.echo("the answer states nothing to check")
            return
        typer.echo(table.round(3).to_string(index=False))
        typer.echo(f"\nleast support {said.score:.3f}; the published min_support is {least:g}")


def _told(said: Any) -> str:  # noqa: ANN401 - a response
    lines = [f"{said['status']} · {said['arm_reason']} · confidence {said['confidence']:.1f} · {said['policy_id']}"]
    if said["status"] == "ambiguous":
        lines += ["Which of these do you mean? Ask again with --select ID."]
        lines += [f"  {one['id']}  {', '.join(one['sources'])}: {one['text']} …" for one in said["options"]]
    else:
        lines += [said["answer"]]
    if said["refusal_reason"]:
        lines += [f"because {said['refusal_reason']}"]
    if said["sources"]:
        lines += ["sources: " + ", ".join(said["sources"])]
    if said.seen.propensity is not None:
        lines += [f"request: {said['request_id']}"]
    return "\n".join([*lines, *(f"warning: {text}" for text in said["warnings"])])


def _generator(model: str | None, base_url: str | None) -> Any:  # noqa: ANN401 - a generator
    if model is None:
        if base_url is not None:
            msg = f"base_url goes with a model, got {base_url} alone; name the model with --model."
            raise ValueError(msg)
        return None
    from raglab.answering.server import OpenAIGenerator

    return OpenAIGenerator(model, base_url or OPENAI)


def _scorer(name: str | None) -> Any:  # noqa: ANN401 - a scorer
    if name is None:
        return None
    from raglab.answering.support import NliScorer
    from raglab.models import load_nli

    return NliScorer(load_nli(name))


def _text(stated: str) -> str:
    """Text as stated, of a file, or of the standard input."""
    if stated == "-":
        import sys

        return sys.stdin.read()
    return Path(stated[1:]).read_text(encoding="utf-8") if stated.startswith("@") else stated


COMMANDS = (
    (index, "raglab index datasets/broker --out out/index"),
    (ask, "raglab ask out/index 'How soon must a flood claim be reported?' -p datasets/broker/policy.yaml"),
    (support, "raglab support 'The excess is £250.' -e 'Storm carries an excess of £400.'"),
)
