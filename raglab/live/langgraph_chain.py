"""LangGraph (shore): the chain as nodes of a graph."""

# Annotations are not postponed here: LangGraph reads those of the state when the graph is built.

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

# before Python 3.12 pydantic draws the schema of this one only
from typing_extensions import TypedDict

from raglab.answering.compression import Compression, Count, Meaning, compress, words_as_tokens
from raglab.decision import chain
from raglab.decision.decisions import Decisions
from raglab.live.arm_choice import default_arm
from raglab.live.pipeline import case_trace, complete_response
from raglab.live.requests import check_request, language_of
from raglab.live.response import Response, ResponseRecord
from raglab.live.system import System, normalise_question
from raglab.replay import decide
from raglab.retrieval.arms import DepthHits, walk
from raglab.values import Case, Chunk, Generation, Generator, Status

NODE_NAMES = ("retriever", "compressor", "critic", "refine_retrieve", "synthesizer")


class GraphInput(TypedDict, total=False):
    """What a graph is asked; as `ask` is. Only the question is required."""

    question: str
    documents: list[str]
    selected_option: int | None
    request_id: str
    groups: dict[str, str]


class GraphState(GraphInput, total=False):
    """What the nodes hand on, all of it plain, so that any checkpointer stores it.

    arm: that retrieves, and why. depth: refinements so far. queries: what was searched, depth by
    depth. passages: the chosen hits as the compressor leaves them, fields of `Chunk`; none where
    retrieval does not answer. tokens: of them. next: where the critic sends the question. response:
    as rule S0.3 has it.
    """

    arm: str
    arm_reason: str
    depth: int
    queries: list[str]
    passages: list[dict[str, Any]]
    tokens: int
    next: Literal["refine_retrieve", "synthesizer"]
    response: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _PassageReader:
    """A generator that reads other texts of the same passages: its `selection`, place by place."""

    otherwise: Generator
    selection: Callable[[str, Sequence[Chunk]], Sequence[Chunk]]

    @property
    def name(self) -> str:
        return self.otherwise.name

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        return self.otherwise.answer(question, self.selection(question, passages))


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The nodes over a system; each takes the state and gives what it changes."""

    system: System
    compressed: Callable[[str, Sequence[Chunk]], Compression]

    def retriever(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Hits of the arm before any refinement."""
        question: Any = state.get("question")
        check_request(
            question,
            documents=state.get("documents"),
            selected_option=state.get("selected_option"),
            request_id=state.get("request_id") or None,
            groups=state.get("groups"),
        )
        arm_name, reason = default_arm(normalise_question(question), self.system)
        further_depths = self._walk(state, arm_name)
        depths = list(islice(further_depths, 1))
        return {"arm": arm_name, "arm_reason": reason, "further": further_depths} | _search_update(
            depths
        )

    def compressor(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Gates on the hits so far say which are chosen.

        Of those, what is left within the budget.
        """
        decisions = self._decide(state, self._depth_hits(state))
        chosen_chunks = decisions.chunks_of_decision(0) if decisions.status[0] == Status.ok else ()
        passages = [decisions.trace.chunks[chunk_number] for chunk_number in chosen_chunks]
        compression = self.compressed(normalise_question(state["question"]), passages)
        return {
            "decision": decisions,
            "passages": [passage._asdict() for passage in compression.passages],
            "tokens": compression.tokens,
        }

    def critic(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Whether the loop goes on past this depth (rule S2.9)."""
        decisions = self._decisions(state)
        refines_again = chain.needs_refinement(
            decisions.tables.evidence, decisions.thresholds
        ).any()
        return {"next": "refine_retrieve" if refines_again else "synthesizer"}

    def refine_retrieve(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Hits of the next depth."""
        depths = self._depth_hits(state)
        further_depths = state.get("further")
        if further_depths is None:  # a checkpoint holds no walk
            further_depths = islice(self._walk(state, state["arm"]), len(depths), None)
        return {"further": further_depths} | _search_update([*depths, *islice(further_depths, 1)])

    def synthesizer(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Answer from what the compressor left, judged against the chosen hits as they are.

        Else refuse or ask back.
        """
        decisions = self._decisions(state)
        selected_option = state.get("selected_option")
        question_text = normalise_question(state["question"])
        passage_rows = state["passages"]
        passages = [
            Chunk(
                **passage_row
                | {
                    field_name: tuple(passage_row.get(field_name, ()))
                    for field_name in ("entities", "section")
                }
            )
            for passage_row in passage_rows
        ]
        # the critic's, or those of the option
        selection = (lambda _, __: passages) if selected_option is None else self._left
        decisions = replace(decisions, language=language_of(question_text, self.system.pack))
        reading_system = replace(
            self.system, generator=_PassageReader(self.system.generator, selection)
        )
        answer, record = complete_response(
            decisions, question_text, selected_option, reading_system, ResponseRecord()
        )
        answer = answer._replace(
            arm=state["arm"],
            arm_reason=state["arm_reason"],
            request_id=state.get("request_id") or uuid4().hex,
        )
        return {"response": dict(Response(answer, record))}

    def _walk(self, state: Mapping[str, Any], arm_name: str) -> Iterator[DepthHits]:
        ready_retriever = self.system.retriever
        document_scope = ready_retriever.scope(state.get("documents") or ())
        return walk(
            ready_retriever.strategies[arm_name],
            ready_retriever.question(normalise_question(state["question"])),
            document_scope,
        )

    def _depth_hits(self, state: Mapping[str, Any]) -> list[DepthHits]:
        """Hits of every depth so far; retrieved again where a checkpoint holds none."""
        known_depths: list[DepthHits] | None = state.get("depth_hits")
        return known_depths or list(islice(self._walk(state, state["arm"]), state["depth"] + 1))

    def _decisions(self, state: Mapping[str, Any]) -> Decisions:
        known_decisions: Decisions | None = state.get("decision")
        return known_decisions or self._decide(state, self._depth_hits(state))

    def _decide(self, state: Mapping[str, Any], depths: Sequence[DepthHits]) -> Decisions:
        question_case = Case(
            "question",
            normalise_question(state["question"]),
            "ok",
            selected_sources=tuple(state.get("documents") or ()),
            extra={"groups": state.get("groups") or {}},
        )
        earlier_decisions: Decisions | None = state.get("decision")
        earlier_trace = None if earlier_decisions is None else earlier_decisions.trace
        return decide(
            case_trace(question_case, state["arm"], depths, self.system, earlier_trace),
            self.system.policy,
        )

    def _left(self, question: str, passages: Sequence[Chunk]) -> Sequence[Chunk]:
        return self.compressed(question, passages).passages


def _search_update(depths: list[DepthHits]) -> dict[str, Any]:
    return {
        "depth_hits": depths,
        "depth": len(depths) - 1,
        "queries": [depth_hits.query for depth_hits in depths],
    }


def build_graph(
    system: System | str | Path,
    *,
    budget: int = 512,
    count: Count = words_as_tokens,
    meaning: Meaning | None = None,
) -> Any:  # noqa: ANN401 - a compiled StateGraph, of a library that is an extra
    """Compiled LangGraph of a system.

    Retriever → compressor → critic → refine_retrieve or synthesizer.

    The nodes decide nothing of their own. `graph.invoke({"question": …, "documents":
    […]})["response"]` has the status, the sources that retrieval chose, its refusals, confidence
    and route that `ask` gives; all but the request id is equal wherever compression leaves the
    answer and the generator's confidence as they are. Compression feeds the generator alone: it
    loses no chosen hit, since all of them are sources, and support is judged against their whole
    texts. Caches are neither read nor written.

    The result is `GraphState` with `depth_hits`, the hits of every depth, and `decision`, what the
    policy decided. These two are not checkpointed, and are computed again where a run is resumed.
    On a thread that continues, documents and a selected option hold until new ones are stated.

    Args:
      system: the system; the folder of an index opens one under the published policy.
      budget: of the compressor, see `raglab.answering.compression.compress`.
      count: of the compressor, likewise.
      meaning: of the compressor, likewise.

    Raises:
      ImportError: the extra is not installed.
      ValueError: a budget below 1; on invocation what `ask` raises. A language model that fails
        raises `ModelUnavailableError`, for any `on_error` of the system.

    Source: confidence heuristics, section 8 (rules S2.9, S2.12).

    Example:
      `build_graph("out/index").invoke({"question": "What is the storm
      excess?"})["response"]["answer"]`
    """
    try:
        from langgraph.channels import UntrackedValue
        from langgraph.graph import END, START, StateGraph
    except ImportError as error:
        message = 'build_graph needs langgraph; pip install "raglab-toolkit[langgraph]".'
        raise ImportError(message) from error

    # Declared here, since their channels are langgraph's: untracked, as hits and walks are no plain
    # values to store.
    class ShownState(GraphState, total=False):
        """State with what no checkpoint holds.

        The hits of every depth (`DepthHits`), what the policy says of them.
        """

        depth_hits: Annotated[Any, UntrackedValue]
        decision: Annotated[Any, UntrackedValue]

    class Running(ShownState, total=False):
        """State with the walk over further depths."""

        further: Annotated[Any, UntrackedValue]

    # All nodes see one version of the index: documents that are added later come with a graph that
    # is built later.
    snapshot = (system if isinstance(system, System) else System.open(system)).snapshot()

    def compress_passages(question: str, passages: Sequence[Chunk]) -> Compression:
        all_positions = range(len(passages))
        compression_settings: dict[str, Any] = {
            "count": count,
            "meaning": meaning,
            "pack": snapshot.pack,
        }
        return compress(
            question, passages, budget=budget, keep=all_positions, **compression_settings
        )

    compress("", (), budget=budget)  # a budget that is none stops here
    nodes = _Nodes(snapshot, compress_passages)
    state_graph = StateGraph(Running, input_schema=GraphInput, output_schema=ShownState)
    for node_name in NODE_NAMES:
        state_graph.add_node(node_name, getattr(nodes, node_name))
    for source_node, target_node in (
        (START, "retriever"),
        ("retriever", "compressor"),
        ("compressor", "critic"),
        ("refine_retrieve", "compressor"),
        ("synthesizer", END),
    ):
        state_graph.add_edge(source_node, target_node)
    state_graph.add_conditional_edges(
        "critic", lambda state: state["next"], ["refine_retrieve", "synthesizer"]
    )
    # More steps than the deepest loop takes: the critic ends it, never a limit of langgraph's.
    n_steps = len(NODE_NAMES) * (snapshot.policy.refine.max_depth + 2)
    return state_graph.compile(name="raglab").with_config(recursion_limit=n_steps)
