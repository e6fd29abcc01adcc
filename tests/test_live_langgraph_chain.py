"""The chain as a LangGraph: what it answers is what `ask` answers."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

import pytest

from generators import Drawn, Fixed, Weighed
from live_worlds import CASES, CORPUS, SMALL, chunk
from raglab.answering.extractive import Extractive
from raglab.live.ask import ask
from raglab.live.langgraph_chain import NODE_NAMES, build_graph
from raglab.live.response import RESPONSE_KEYS
from raglab.live.system import System, build_index
from raglab.policy_parts import own_gates
from raglab.store.policies import Policy
from raglab.values import Chunk, Corpus, Generation

pytest.importorskip("langgraph")

ARMS = ("hybrid", "iterative", "graph", "table")
OPEN = {
    "l2": {"enabled": False},
    "similarity": {"enabled": False},
    "gap": {"enabled": False},
    "confidence": {"enabled": False},
    "support": {"enabled": False},
}
POLICIES = {
    "published": {
        "l2": {"enabled": True},
        "similarity": {"enabled": True},
        "gap": {"enabled": True},
    },
    "answers": {},
    "denies": {"domain": {"enabled": True}, "patterns": {"deny": ["baggage"]}},
    "refuses at once": {
        "similarity": {"enabled": True, "min_similarity": 1.0},
        "refine": {"max_depth": 0},
    },
    "refines and refuses": {
        "confidence": {"enabled": True, "tau_default": 100.0, "tau_explicit": 100.0}
    },
    "refines to the end": {
        "confidence": {"enabled": True, "tau_default": 100.0, "tau_explicit": 100.0},
        "refine": {"epsilon": 0.0, "max_depth": 4},
    },
    "refines and answers": {
        "confidence": {"enabled": True, "tau_default": 80.0, "tau_explicit": 70.0},
        "refine": {"epsilon": 0.0},
        "generation": {"enabled": False},
    },
    "does not refine on refusal": {
        "similarity": {"enabled": True, "min_similarity": 0.8},
        "refine": {"refine_on_refusal": False},
    },
    "an order and a gate of the user": {
        "similarity": {"enabled": True, "min_similarity": 0.6},
        "gates": {"brief": {"most": 7.0}},
        "decision": {
            "order": ["domain", "similarity", "gates.brief", "l2", "density", "gap", "confidence"]
        },
    },
    "asks back": {
        "gap": {"enabled": True, "min_gap": 4.0},
        "resolver": {"min_group_gap": None, "signature": False, "anchor": False, "entities": False},
    },
    "wants support": {
        "support": {"enabled": True, "min_support": 0.6},
        "generation": {"enabled": False},
    },
    "wants more than is generated": {"generation": {"min_generation_confidence": 0.95}},
    "refuses by a signal": {"signals": {"top1_cosine": {"min": 0.9}}},
    "asks by a signal": {"signals": {"top1_cosine": {"min": 1.0, "on_fire": "ask"}}},
    "chooses one": {"chosen": {"final_k": 1}},
}
WINTER = "to motor be winter"  # its best passage is found by the second rewriting only
QUESTIONS = (*CASES, CASES[0]._replace(id="h", query=WINTER))
DECIDED = ("status", "refused", "confidence", "route", "arm", "arm_reason", "options", "policy_id")


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """A gate of the user on the words of a question."""
    monkeypatch.setattr(own_gates, "REGISTERED_GATES", {})
    most = {"most": {"side": "ceiling", "default": 9.0, "unit": "count"}}
    own_gates.register_gate("brief", thresholds=most, reads=["words"])(
        lambda read, limits: limits.most - read("words")
    )


@pytest.fixture(scope="module")
def stored_index(tmp_path_factory):
    """Return where the index stands, and the system over it once it is open."""
    return {"folder": tmp_path_factory.mktemp("graph") / "index"}


@pytest.fixture
# the fixture
def opened(stored_index, encoder):
    """Return what gives a system over the small corpus, under a policy, other parts if stated."""
    del encoder
    if "lab" not in stored_index:
        table = chunk(
            13,
            "t.md",
            1,
            "Excesses\n\n| Cause | Excess |\n|---|---|\n| Storm | £400 |\n| Theft | £250 |",
        )
        build_index(
            Corpus("small", (*CORPUS.chunks, table)), stored_index["folder"], cache=None, **SMALL
        )
        parts = {"cache": False, "generator": Drawn(), "scorer": Weighed(), "rewriter": Turning()}
        stored_index["lab"] = System.open(stored_index["folder"], **parts)

    def make(policy=None, *, generator=None, **more):
        system = stored_index["lab"].replace(Policy.from_mapping(_merged(OPEN, policy or {})))
        writer = system.generator
        return replace(
            system, generator=replace(writer, otherwise=generator or writer.otherwise), **more
        )

    return make


class Turning:
    """Rewrites as RM3 might, and turns to winter sports at the second try."""

    name = "turning"

    def rewrite(self, question, passages, step):
        """The question, then a passage, then the question and words of what was found."""
        if step == 2:
            return "Winter sports need the extra premium to be paid."
        return f"{question} {passages[0].split()[-1]}" if step > 2 and passages else question


def _merged(base, more):
    return base | {key: {**base.get(key, {}), **value} for key, value in more.items()}


def both(system, question, documents=(), **more):
    """What `ask` and what the graph say."""
    chosen = more.pop("selected_option", None)
    plain = ask(
        question, system=system, documents=list(documents), selected_option=chosen, request_id="r"
    )
    request = {
        "question": question,
        "documents": list(documents),
        "selected_option": chosen,
        "request_id": "r",
    }
    return dict(plain), build_graph(system, **more).invoke(request)["response"]


class TestEquality:
    """Graph and `ask` are one chain."""

    @pytest.mark.parametrize("place", range(len(POLICIES)), ids=POLICIES)
    def test_every_policy(self, opened, place):
        """Whatever the policy does, all fields are equal, at any budget, if no texts are read."""
        system = opened([*POLICIES.values()][place])
        for number, case in enumerate(QUESTIONS[place % 3 :: 3]):
            plain, response = both(
                system, case.query, case.selected_sources, budget=(1, 512)[number % 2]
            )
            assert response == plain
            assert tuple(response) == RESPONSE_KEYS

    @pytest.mark.parametrize("arm", ARMS)
    def test_every_arm(self, opened, arm):
        """Each walks as it does in `ask`, refinements among it."""
        depths = set()
        for name in ("refines and answers", "refines to the end"):
            system = opened(POLICIES[name], arm=arm, generator=Fixed())
            graph = build_graph(system)
            for case in (CASES[1], CASES[4], QUESTIONS[-1]):
                request = {
                    "question": case.query,
                    "documents": list(case.selected_sources),
                    "request_id": "r",
                }
                state = graph.invoke(request)
                plain = ask(
                    case.query, system=system, documents=case.selected_sources, request_id="r"
                )
                assert state["response"] == plain
                assert tuple(state["queries"]) == plain.record.queries
                assert state["depth"] == len(state["queries"]) - 1
                depths.add(state["depth"])
        assert len(depths) >= 2
        assert max(depths) == 4

    @pytest.mark.parametrize("chosen", [1, 2, 7])
    def test_a_selection(self, opened, chosen):
        """The user's choice is answered alike, and an id that there is none of refused alike."""
        plain, response = both(
            opened(POLICIES["asks back"]), "What is covered?", selected_option=chosen, budget=1
        )
        assert response == plain

    def test_the_extractive_generator(self, opened):
        """What retrieval decides is equal at any budget.

        All is equal where the passages are left as they are.
        """
        system = opened({}, generator=Extractive())
        changed = []
        for case in QUESTIONS:
            plain, response = both(system, case.query, case.selected_sources, budget=1)
            assert [response[key] for key in DECIDED if plain["status"] == response["status"]] == [
                plain[key] for key in DECIDED if plain["status"] == response["status"]
            ]
            changed.append(response["answer"] != plain["answer"])
        assert not all(changed)
        plain, response = both(system, "What is the motor excess?", ["motor.md"], budget=512)
        assert response == plain

    def test_a_router(self, opened):
        """The arm is chosen by the question, as in `ask`."""
        plain, response = both(
            opened({"strategy": {"arm": "router"}}), "Compare the motor excess with the home excess"
        )
        assert response == plain


class Told:
    """Says what it was given, and remembers it."""

    name = "told"

    def __init__(self, text=""):
        self.given = []
        self.text = text

    def answer(self, question, passages):
        """The first passage, or the fixed text."""
        del question
        self.given.append(tuple(passages))
        return Generation(self.text or passages[0].text, 0.9, (len(passages) - 1,))


class Heard:
    """Supports everything, and remembers what it judged by."""

    name = "heard"

    def __init__(self):
        self.passages = []

    def support(self, answer, passages):
        """Full support."""
        self.passages.append(tuple(passages))
        return Weighed().support(answer, passages)._replace(score=1.0)


class TestCompressor:
    """It feeds the generator, and nothing else."""

    def test_the_generator_reads_what_is_left_and_the_scorer_the_whole(self, opened):
        """No chosen hit is lost, each is cut; citations keep their place."""
        generator, scorer = Told("The excess is £250."), Heard()
        system = opened({}, generator=generator, scorer=scorer)
        question = "How many days after the start can the policy be cancelled?"
        plain, response = both(system, question, ["faq.txt"], budget=1)
        whole, shortened = generator.given
        assert [passage.chunk_id for passage in shortened] == [
            passage.chunk_id for passage in whole
        ]
        assert sum(len(passage.text) for passage in shortened) < sum(
            len(passage.text) for passage in whole
        )
        assert scorer.passages[1] == scorer.passages[0] == tuple(passage.text for passage in whole)
        assert response == plain
        assert response["sources"][0] == whole[-1].shown

    def test_the_state_shows_what_is_left(self, opened):
        """As fields of a chunk, with the tokens; none where retrieval refuses."""
        graph = build_graph(opened(), budget=20)
        state = graph.invoke({"question": "What is the motor excess?"})
        assert [set(row) for row in state["passages"]] == [set(Chunk._fields)] * 4
        assert state["tokens"] >= 4
        refused = build_graph(opened(POLICIES["refuses at once"])).invoke(
            {"question": "What is the motor excess?"}
        )
        assert (refused["passages"], refused["tokens"]) == ([], 0)

    def test_a_table_is_still_answered_from(self, opened):
        """Its row, or its chunk cut down to the row and the head, is among what is left."""
        system = opened({}, generator=Extractive(), arm="table")
        question = "What is the storm excess?"
        plain, response = both(system, question, budget=1)
        assert "£400" in response["answer"]
        assert response == plain
        scoped = build_graph(system, budget=1).invoke({"question": question, "documents": ["t.md"]})
        assert "£400" in scoped["response"]["answer"]
        assert scoped["response"]["sources"] == ["docs/t.md#1"]

    def test_meaning_and_count(self, opened):
        """Both reach the compressor."""
        questions = []

        def meaning(question, texts):
            questions.append(question)
            return [0.0] * len(texts)

        state = build_graph(opened(), budget=40, count=len, meaning=meaning).invoke(
            {"question": " What  is it? "}
        )
        assert set(questions) == {"What is it?"}
        assert state["tokens"] == sum(len(row["text"]) for row in state["passages"])


class TestGraph:
    """The graph as LangGraph sees it."""

    def test_nodes_and_edges(self, opened):
        """The source's pipeline."""
        drawn = build_graph(opened()).get_graph()
        assert [name for name in drawn.nodes if not name.startswith("__")] == list(NODE_NAMES)
        assert {(edge.source, edge.target) for edge in drawn.edges} == {
            ("__start__", "retriever"),
            ("retriever", "compressor"),
            ("compressor", "critic"),
            ("critic", "refine_retrieve"),
            ("critic", "synthesizer"),
            ("refine_retrieve", "compressor"),
            ("synthesizer", "__end__"),
        }

    def test_streamed_step_by_step(self, opened):
        """A question that is refined twice goes round twice."""
        stated = {
            "confidence": {"enabled": True, "tau_default": 100.0},
            "refine": {"epsilon": 0.0, "max_depth": 2},
        }
        steps = build_graph(opened(stated)).stream(
            {"question": "What is the motor excess?"}, stream_mode="updates"
        )
        again = ["refine_retrieve", "compressor", "critic"]
        assert [next(iter(step)) for step in steps] == [
            *NODE_NAMES[:3],
            *again,
            *again,
            "synthesizer",
        ]

    def test_stopped_and_resumed_from_a_checkpoint(self, opened):
        """A checkpoint holds plain values only.

        What it does not hold is made again, to the same response.
        """
        from langgraph.checkpoint.memory import InMemorySaver

        system = opened(POLICIES["refines and answers"])
        for case in (*CASES[:2], *CASES[4:5], QUESTIONS[-1]):
            graph = build_graph(system)
            graph.checkpointer = InMemorySaver()
            request = {
                "question": case.query,
                "documents": list(case.selected_sources),
                "request_id": "r",
            }
            config = {"configurable": {"thread_id": case.id}}
            state = graph.invoke(request, config, interrupt_after="*")
            while graph.get_state(config).next:
                assert not {"further", "depth_hits", "decision"} & set(
                    graph.get_state(config).values
                )
                state = graph.invoke(None, config, interrupt_after="*")
            assert state["response"] == ask(
                case.query, system=system, documents=case.selected_sources, request_id="r"
            )

    def test_two_questions_do_not_mix(self, opened):
        """One graph answers many, in any order."""
        system = opened()
        graph = build_graph(system)
        requests = [
            {"question": case.query, "documents": list(case.selected_sources), "request_id": "r"}
            for case in CASES
        ]
        responses = [graph.invoke(request)["response"] for request in requests]
        assert responses == [response["response"] for response in graph.batch(requests)]
        assert responses[::-1] == [graph.invoke(request)["response"] for request in requests[::-1]]

    def test_awaited(self, opened):
        """The same, asynchronously."""
        system = opened()
        request = {"question": WINTER, "request_id": "r"}
        assert asyncio.run(build_graph(system).ainvoke(request))["response"] == ask(
            WINTER, system=system, request_id="r"
        )

    def test_a_folder(self, stored_index, opened):
        """Opens the index under the published policy."""
        opened()
        response = build_graph(stored_index["folder"]).invoke({"question": "  "})["response"]
        assert response["refusal_reason"] == "empty query"
        assert response["request_id"]


class TestDoor:
    """What comes in."""

    def test_lengths_are_those_of_ask(self, opened):
        """A question, documents and an option beyond all measure stop at the first node."""
        graph = build_graph(opened())
        for more, message in (
            (
                {"question": "x" * 20_001},
                "question must be a Unicode text of 0 to 20000 characters",
            ),
            ({"documents": "a.md"}, "documents must be a list of at most 1000 names"),
            ({"selected_option": "1"}, "selected_option must be the number"),
        ):
            with pytest.raises(ValueError, match=message):
                graph.invoke({"question": "What?", **more})

    def test_a_budget_of_nothing(self, opened):
        """Stops when the graph is built."""
        with pytest.raises(ValueError, match="budget must be 1 or more"):
            build_graph(opened(), budget=0)

    def test_without_the_extra(self, opened, monkeypatch):
        """Says what to install."""
        system = opened({}, generator=Fixed())
        monkeypatch.setitem(sys.modules, "langgraph.graph", None)
        with pytest.raises(ImportError, match=r'pip install "raglab-toolkit\[langgraph\]"'):
            build_graph(system)
