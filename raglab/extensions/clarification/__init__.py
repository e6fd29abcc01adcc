"""Clarification: question gaps, replies, field reading, learned defaults in a live system."""

_ROOM = "raglab.extensions.clarification"
POINTS: dict[str, str] = {
    "clarifier": f"{_ROOM}.live_clarifier:make_clarifier",
    "signal_family.questions": f"{_ROOM}.question_signals:QuestionSignals",
    "audit_table.defaults": f"{_ROOM}.logged_defaults:LOGGED_DEFAULTS",
    "model_calls": f"{_ROOM}.model_calls:ModelCalls",
}
