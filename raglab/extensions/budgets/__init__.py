"""Budgets: what keeps a mean cost; features of texts and ridges that a policy of prices reads."""

_ROOM = "raglab.extensions.budgets"

POINTS: dict[str, str] = {
    "check_budgeted": f"{_ROOM}.ledgers:check_budgeted",
    "frontier": f"{_ROOM}.prices:frontier",
    "open_ledger": f"{_ROOM}.ledgers:open_ledger",
    "plan_within": f"{_ROOM}.plans:plan_within",
    "study_plans": f"{_ROOM}.plans:study_plans",
    "unkept_note": f"{_ROOM}.prices:unkept_note",
}
