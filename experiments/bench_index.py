"""What an index of a million passages takes.

Seconds to build, bytes on disk, memory, recall at 50, time a question.

Passages are pairs of real sentences: of public sets under `../shared/data` where they are there,
else of the bundled documents. The bundled encoder makes embeddings of some thousand sentences (its
speed is printed; a million passages would take it hours); **those of the passages are synthetic**:
the mean of the embeddings of the two sentences and seeded noise, of length 1. Questions are real
ones, with the encoder's own embeddings. Every index is built and asked in a process of its own, on
one core and memory-mapped; times of building are processor time, of questions both. In `--folder`
the embeddings of sentences stay, under a name by what they are made of, and the last indexes, which
every run builds afresh.

    python experiments/bench_index.py                       100,000 passages, both kinds
    python experiments/bench_index.py --passages 1000000    a million
    # the same path on 2,000 passages, in seconds
    python experiments/bench_index.py --quick
"""

# ruff: noqa: E402 - the number of threads is set before NumPy starts

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import raglab
from raglab.extensions.scale.large_index import LargeSize, build_large, open_large
from raglab.models.loaders import identifier_of, load_encoder
from raglab.retrieval.dense import StoredKind, distances, index_bytes
from raglab.retrieval.rank_fusion import reciprocal_rank_fusion

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
KINDS: tuple[StoredKind, ...] = ("ivfpq", "hnsw-sq8")
SENTENCES, QUESTIONS = 12_000, 400
NOISE = 0.35  # length of the noise beside a mean of length 1
AROUND = 40  # sentences, by their place in the documents, that a passage's second one is drawn from
SHARD = 65_536
MATERIAL, QUESTION_FILE = "material.npz", "questions.json"


class Material(NamedTuple):
    """Sentences in the order of their documents and their embeddings; questions and theirs."""

    sentences: list[str]
    vectors: NDArray[np.float32]
    questions: list[str]
    query_vectors: NDArray[np.float32]


def read_texts(data: Path) -> tuple[list[str], list[str]]:
    """Texts of SQuAD and SciFact and questions of SQuAD if at hand, else of bundled documents."""
    squad, scifact = data / "squad2-dev-cs224n" / "dev-v2.0.json", data / "beir-scifact"
    if squad.is_file() and scifact.is_dir():
        paragraphs = [
            row
            for page in json.loads(squad.read_text("utf-8"))["data"]
            for row in page["paragraphs"]
        ]
        more = [
            json.loads(line)["text"]
            for line in (scifact / "corpus.jsonl").read_text("utf-8").splitlines()
        ]
        questions = [question["question"] for row in paragraphs for question in row["qas"]]
        return [row["context"] for row in paragraphs] + more, questions
    corpus = raglab.load_corpus(ROOT / "datasets" / "broker" / "documents")
    texts = [chunk.full_text for chunk in corpus.chunks]
    return texts, [" ".join(text.split()[:10]) + "?" for text in texts]


def chosen_texts(n_sentences: int, data: Path) -> tuple[list[str], list[str]]:
    """Sentences in the order of their documents, and questions; seeded."""
    texts, questions = read_texts(data)
    cut = (part.strip() for text in texts for part in re.split(r"(?<=[.!?])\s+", text))
    sentences = list(dict.fromkeys(part for part in cut if 40 <= len(part) <= 300))
    rng = np.random.default_rng(0)
    sentences = [sentences[i] for i in np.sort(rng.permutation(len(sentences))[:n_sentences])]
    return sentences, [questions[i] for i in rng.permutation(len(questions))[:QUESTIONS]]


def material_folder(place: Path, sentences: list[str], questions: list[str]) -> Path:
    """Folder of the embeddings of some sentences and questions by today's encoder.

    Another text is another name.
    """
    texts = json.dumps(
        [identifier_of(None), sentences, questions], ensure_ascii=False, separators=(",", ":")
    )
    return place / f"material-{sha256(texts.encode()).hexdigest()[:16]}"


def make_material(folder: Path, sentences: list[str], questions: list[str]) -> Material:
    """Sentences and questions with the encoder's embeddings, kept in a folder named by them."""
    path = folder / MATERIAL
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / QUESTION_FILE).write_text(json.dumps(questions), encoding="utf-8")
        encoder = load_encoder()
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        vectors = np.empty((len(sentences), encoder.dim), np.float32)
        begun = time.process_time()
        for start in range(0, len(order), 256):
            some = order[start : start + 256]
            vectors[some] = encoder.sentences([sentences[i] for i in some])
        speed = len(order) / (time.process_time() - begun)
        print(f"encoder: {speed:.0f} sentences of 40 to 300 characters a second of one core")
        query_vectors = np.concatenate(
            [encoder.sentences([text], query=True) for text in questions]
        )
        partial = path.with_name(f"{path.name}.tmp")
        with partial.open("wb") as file:
            np.savez(file, vectors=vectors, asked=query_vectors)
        partial.replace(path)  # a run that is killed leaves no half of it
    stored = np.load(path, allow_pickle=False)
    return Material(sentences, stored["vectors"], questions, stored["asked"])


class Passages:
    """Passages of two sentences near each other, with their synthetic embeddings, by position."""

    def __init__(self, material: Material, n: int) -> None:
        self.material, self.n = material, n
        rng = np.random.default_rng(12)
        count = len(material.sentences)
        self.first = rng.integers(count, size=n)
        self.second = (self.first + rng.integers(1, AROUND, size=n)) % count

    def texts(self) -> list[str]:
        """All passages."""
        words = self.material.sentences
        return [
            f"{words[a]} {words[b]}"
            for a, b in zip(self.first.tolist(), self.second.tolist(), strict=True)
        ]

    def vectors(self, some: slice) -> NDArray[np.float32]:
        """Embeddings of some of them; of whole shards, whose noise hangs on where they begin."""
        rng = np.random.default_rng([13, some.start])
        base = self.material.vectors
        both = base[self.first[some]] + base[self.second[some]]
        both /= np.linalg.norm(both, axis=1, keepdims=True)
        both += rng.standard_normal(both.shape, np.float32) * np.float32(
            NOISE / base.shape[1] ** 0.5
        )
        unit: NDArray[np.float32] = both / np.linalg.norm(both, axis=1, keepdims=True)
        return unit


def build(folder: Path, n: int, n_sentences: int, kind: StoredKind, data: Path) -> dict[str, Any]:
    """Build one index afresh: its recall is measured on half of the questions."""
    shutil.rmtree(folder, ignore_errors=True)
    material = make_material(folder.parent, *chosen_texts(n_sentences, data))
    passages = Passages(material, n)
    texts = passages.texts()
    size = LargeSize(n, n, material.vectors.shape[1], SHARD)
    begun, used = time.perf_counter(), time.process_time()
    manifest = build_large(
        folder,
        texts,
        size,
        passages.vectors,
        lambda: material.query_vectors[: len(material.query_vectors) // 2],
        kind=kind,
        key="bench",
    )
    bytes_of = {"vectors": 0, "dense": 0, "bm25": 0}
    for file in manifest.files:
        part = (
            "vectors" if file.name.startswith("v") else "dense" if "faiss" in file.name else "bm25"
        )
        bytes_of[part] += file.size
    return {
        "cpu_s": time.process_time() - used,
        "wall_s": time.perf_counter() - begun,
        "peak_mb": peak_mb(),
        "mb": {name: size / 1e6 for name, size in bytes_of.items()},
        "stated_mb": index_bytes(kind, n, size.dim) / 1e6,
        "recall_at_50": manifest.recall_at_50,
        "width": manifest.width,
        "widen": manifest.widen,
    }


def ask(folder: Path) -> dict[str, Any]:
    """Ask the other half of the questions.

    Milliseconds by index, recall against every passage, peak memory.
    """
    stored = json.loads((folder.parent / QUESTION_FILE).read_text("utf-8"))
    query_vectors = np.load(folder.parent / MATERIAL, allow_pickle=False)["asked"]
    half = len(stored) // 2
    begun = time.perf_counter()
    index = open_large(folder, "bench")
    opened = time.perf_counter() - begun
    n = index.manifest.n_chunks
    ms: dict[str, list[tuple[float, float]]] = {"dense": [], "bm25": [], "hybrid": []}
    nearest = []
    for number in range(half, len(stored)):
        marks = [(time.perf_counter(), time.process_time())]
        l2, near = index.dense.search(query_vectors[number : number + 1], 50)
        marks.append((time.perf_counter(), time.process_time()))
        words = index.bm25.search([stored[number]], 50)[1]
        marks.append((time.perf_counter(), time.process_time()))
        reciprocal_rank_fusion([near, words], n)
        distances(query_vectors[number : number + 1], index.vectors, near)
        marks.append((time.perf_counter(), time.process_time()))
        for name, (first, last) in {"dense": (0, 1), "bm25": (1, 2), "hybrid": (0, 3)}.items():
            ms[name].append((marks[last][0] - marks[first][0], marks[last][1] - marks[first][1]))
        nearest.append(l2[0])
    peak = peak_mb()
    exact = exact_distances(index.vectors, query_vectors[half : len(stored)], 50)
    recall = float(np.mean(np.stack(nearest) <= exact[:, -1:] + 1e-5))
    quantiles = {
        name: [
            round(1e3 * float(np.percentile(times, at)), 1)
            for times in zip(*rows, strict=True)
            for at in (50, 95)
        ]
        for name, rows in ms.items()
    }
    return {"open_s": opened, "ms": quantiles, "recall": recall, "peak_mb": peak}


# shards
def exact_distances(
    vectors: Any,  # noqa: ANN401
    queries: NDArray[np.float32],
    k: int,
) -> NDArray[np.float64]:
    """Squared distances of the k nearest of all rows, without FAISS."""
    best = np.full((len(queries), k), np.inf)
    for block in vectors.blocks():
        l2 = (
            2.0
            - 2.0 * (queries @ block.T).astype(np.float64)
            + ((block**2).sum(axis=1) - 1.0)[None, :]
        )
        best = np.partition(np.concatenate([best, l2], axis=1), k - 1, axis=1)[:, :k]
    return np.sort(best, axis=1)


def peak_mb() -> float:
    """Largest resident memory of this process so far, in 1e6 bytes, pages of mapped files among it.

    `ru_maxrss` of a child begins at what its parent had; Linux says elsewhere what the process
    itself had.
    """
    status = Path("/proc/self/status")
    match = re.search(r"VmHWM:\s+(\d+) kB", status.read_text("utf-8")) if status.is_file() else None
    if match is not None:
        return int(match[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def measured(*words: str) -> dict[str, Any]:
    """What a process of its own tells."""
    done = subprocess.run(
        [sys.executable, __file__, *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def run(place: Path, n: int, n_sentences: int, kinds: tuple[StoredKind, ...], data: Path) -> None:
    """Build and ask each kind, and print what it took."""
    texts = chosen_texts(n_sentences, data)
    place = material_folder(place, *texts)
    material = make_material(place, *texts)
    print(
        f"{n:,} passages of two of {len(material.sentences):,} sentences; embeddings of passages "
        "are synthetic"
    )
    for kind in kinds:
        sizes = [
            "--folder",
            str(place),
            "--passages",
            str(n),
            "--sentences",
            str(n_sentences),
            "--data",
            str(data),
        ]
        building, asking = measured("--build", kind, *sizes), measured("--ask", kind, *sizes)
        print(
            f"\n{kind}: built in {building['cpu_s']:.0f} s of one core ({building['wall_s']:.0f} "
            "s on the clock)"
        )
        on_disk = ", ".join(f"{name} {size:,.0f}" for name, size in building["mb"].items())
        print(f"  MB on disk: {on_disk}; stated for the index {building['stated_mb']:,.0f}")
        print(f"  peak MB: building {building['peak_mb']:,.0f}, asking {asking['peak_mb']:,.0f}")
        print(f"  searched {building['width']} wide, {building['widen']} candidates a hit")
        print(
            f"  recall at 50: {building['recall_at_50']:.3f} when built, {asking['recall']:.3f} "
            "on other questions"
        )
        print(f"  opened in {asking['open_s']:.2f} s, every hash compared")
        for name, (p50, p95, cpu50, cpu95) in asking["ms"].items():
            print(f"  {name:8} ms a question: p50 {p50}, p95 {p95} (of the core: {cpu50}, {cpu95})")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--sentences", type=int, default=SENTENCES)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--build", choices=KINDS)
    parser.add_argument("--ask", choices=KINDS)
    args = parser.parse_args()
    n, n_sentences = (2_000, 300) if args.quick else (args.passages, args.sentences)
    if args.build or args.ask:
        folder = args.folder / f"{args.build or args.ask}-{args.passages}"
        print(
            json.dumps(
                build(folder, n, n_sentences, args.build, args.data) if args.build else ask(folder)
            )
        )
        return
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(args.folder or scratch)
        place.mkdir(parents=True, exist_ok=True)
        run(place, n, n_sentences, tuple(args.kind or KINDS), args.data)


if __name__ == "__main__":
    main()
