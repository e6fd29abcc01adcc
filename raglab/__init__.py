"""raglab: take a RAG system's decisions apart and tune every threshold on labelled questions.

    query → retrieval → Trace ─stored once→ evidence → gates → resolver → policy → Decision
                          └──────── replay (thousands of policies) → Tally → metrics → study → report

Names load on first use, so that importing the package stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Policy": "raglab.store.policies",
    "Trace": "raglab.store.traces",
    "TraceError": "raglab.store.traces",
    "InputError": "raglab.store._errors",
    "Case": "raglab.values",
    "Chunk": "raglab.values",
    "Corpus": "raglab.values",
    "Status": "raglab.values",
    "load_corpus": "raglab.store.corpus",
    "save_corpus": "raglab.store.corpus",
    "load_cases": "raglab.store.qa",
    "save_cases": "raglab.store.qa",
    "trace_from_frame": "raglab.store.frames",
    "build_trace": "raglab.lab.build",
    "record_answers": "raglab.lab.answers",
    "answer_outcomes": "raglab.lab.calibrate",
    "calibrate_answers": "raglab.lab.calibrate",
    "build_index": "raglab.lab.live",
    "Lab": "raglab.lab.live",
    "ask": "raglab.lab.session",
    "reply": "raglab.lab.session",
    "buttons": "raglab.lab.widget",
    "explain": "raglab.lab.asking",
    "AuditLog": "raglab.lab.audit_log",
    "ClarificationDefault": "raglab.default_learner",
    "ClarificationRequest": "raglab.default_learner",
    "feedback": "raglab.lab.choosing",
    "audit_rewards": "raglab.lab.reward_audit",
    "tune_bandit": "raglab.lab.bandit_study",
    "ClarifyDisplay": "raglab.lab.clarify_plots",
    "ConfidenceDisplay": "raglab.lab.clarify_plots",
    "SilenceDisplay": "raglab.lab.clarify_plots",
    "SplitDisplay": "raglab.lab.clarify_plots",
    "tune_clarification": "raglab.lab.clarify_study",
    "ArmShareDisplay": "raglab.lab.bandit_plots",
    "ForestDisplay": "raglab.lab.bandit_plots",
    "PosteriorDisplay": "raglab.lab.bandit_plots",
    "PropensityDisplay": "raglab.lab.bandit_plots",
    "RegretDisplay": "raglab.lab.bandit_plots",
    "RewardAuditDisplay": "raglab.lab.bandit_plots",
    "build_graph": "raglab.lab.graph",
    "hits_frame": "raglab.lab.langchain",
    "trace_from_langchain": "raglab.lab.langchain",
    "compress": "raglab.answering.compress",
    "Response": "raglab.lab.response",
    "decide": "raglab.replay",
    "sweep": "raglab.replay",
    "steps": "raglab.replay",
    "flips": "raglab.replay",
    "certify_policy": "raglab.lab.certificate",
    "check_policy": "raglab.lab.check",
    "fuse": "raglab.lab.fuse",
    "compare_gates": "raglab.lab.fuse",
    "honest": "raglab.lab.honest",
    "slices": "raglab.lab.slices",
    "transfer": "raglab.lab.transfer",
    "tune": "raglab.lab.study",
    "TuneResult": "raglab.lab.study",
    "Goal": "raglab.lab.goal",
    "track": "raglab.lab.tracking",
    "ranking": "raglab.lab.ranking",
    "write_report": "raglab.lab.report",
    "ReliabilityDisplay": "raglab.lab.displays",
    "RiskCoverageDisplay": "raglab.lab.displays",
    "ThresholdSweepDisplay": "raglab.lab.displays",
    "OutcomeTableDisplay": "raglab.lab.displays",
    "DecisionBoundaryDisplay": "raglab.lab.boundary",
}
_MODULES = (
    "bandit",
    "calibration",
    "certify",
    "default_learner",
    "fusion",
    "metrics",
    "off_policy",
    "replay",
    "reward",
    "robustness",
)  # the algebra, by its own names
__all__ = ["__version__", *_HOME, *_MODULES]  # noqa: PLE0604 - names, all of them strings

if TYPE_CHECKING:
    from raglab import bandit as bandit
    from raglab import calibration as calibration
    from raglab import certify as certify
    from raglab import default_learner as default_learner
    from raglab import fusion as fusion
    from raglab import metrics as metrics
    from raglab import off_policy as off_policy
    from raglab import replay as replay
    from raglab import reward as reward
    from raglab import robustness as robustness
    from raglab.answering.compress import compress as compress
    from raglab.default_learner import ClarificationDefault as ClarificationDefault
    from raglab.default_learner import ClarificationRequest as ClarificationRequest
    from raglab.lab.answers import record_answers as record_answers
    from raglab.lab.asking import explain as explain
    from raglab.lab.audit_log import AuditLog as AuditLog
    from raglab.lab.bandit_plots import ArmShareDisplay as ArmShareDisplay
    from raglab.lab.bandit_plots import ForestDisplay as ForestDisplay
    from raglab.lab.bandit_plots import PosteriorDisplay as PosteriorDisplay
    from raglab.lab.bandit_plots import PropensityDisplay as PropensityDisplay
    from raglab.lab.bandit_plots import RegretDisplay as RegretDisplay
    from raglab.lab.bandit_plots import RewardAuditDisplay as RewardAuditDisplay
    from raglab.lab.bandit_study import tune_bandit as tune_bandit
    from raglab.lab.boundary import DecisionBoundaryDisplay as DecisionBoundaryDisplay
    from raglab.lab.build import build_trace as build_trace
    from raglab.lab.calibrate import answer_outcomes as answer_outcomes
    from raglab.lab.calibrate import calibrate_answers as calibrate_answers
    from raglab.lab.certificate import certify_policy as certify_policy
    from raglab.lab.check import check_policy as check_policy
    from raglab.lab.choosing import feedback as feedback
    from raglab.lab.clarify_plots import ClarifyDisplay as ClarifyDisplay
    from raglab.lab.clarify_plots import ConfidenceDisplay as ConfidenceDisplay
    from raglab.lab.clarify_plots import SilenceDisplay as SilenceDisplay
    from raglab.lab.clarify_plots import SplitDisplay as SplitDisplay
    from raglab.lab.clarify_study import tune_clarification as tune_clarification
    from raglab.lab.displays import OutcomeTableDisplay as OutcomeTableDisplay
    from raglab.lab.displays import ReliabilityDisplay as ReliabilityDisplay
    from raglab.lab.displays import RiskCoverageDisplay as RiskCoverageDisplay
    from raglab.lab.displays import ThresholdSweepDisplay as ThresholdSweepDisplay
    from raglab.lab.fuse import compare_gates as compare_gates
    from raglab.lab.fuse import fuse as fuse
    from raglab.lab.goal import Goal as Goal
    from raglab.lab.graph import build_graph as build_graph
    from raglab.lab.honest import honest as honest
    from raglab.lab.langchain import hits_frame as hits_frame
    from raglab.lab.langchain import trace_from_langchain as trace_from_langchain
    from raglab.lab.live import Lab as Lab
    from raglab.lab.live import build_index as build_index
    from raglab.lab.ranking import ranking as ranking
    from raglab.lab.report import write_report as write_report
    from raglab.lab.response import Response as Response
    from raglab.lab.reward_audit import audit_rewards as audit_rewards
    from raglab.lab.session import ask as ask
    from raglab.lab.session import reply as reply
    from raglab.lab.slices import slices as slices
    from raglab.lab.study import TuneResult as TuneResult
    from raglab.lab.study import tune as tune
    from raglab.lab.tracking import track as track
    from raglab.lab.transfer import transfer as transfer
    from raglab.lab.widget import buttons as buttons
    from raglab.replay import decide as decide
    from raglab.replay import flips as flips
    from raglab.replay import steps as steps
    from raglab.replay import sweep as sweep
    from raglab.store._errors import InputError as InputError
    from raglab.store.corpus import load_corpus as load_corpus
    from raglab.store.corpus import save_corpus as save_corpus
    from raglab.store.frames import trace_from_frame as trace_from_frame
    from raglab.store.policies import Policy as Policy
    from raglab.store.qa import load_cases as load_cases
    from raglab.store.qa import save_cases as save_cases
    from raglab.store.traces import Trace as Trace
    from raglab.store.traces import TraceError as TraceError
    from raglab.values import Case as Case
    from raglab.values import Chunk as Chunk
    from raglab.values import Corpus as Corpus
    from raglab.values import Status as Status


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name in _MODULES:
        return importlib.import_module(f"raglab.{name}")
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    found = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})
