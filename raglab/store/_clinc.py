"""CLINC150 with out-of-scope queries: cases only, there is no corpus.

Splits: train and oos_train are `tune`, val and oos_val `certify`, test and oos_test `report`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from raglab.store._errors import Where, input_error, shown
from raglab.store._fields import Record, texts_of
from raglab.store._files import read_json
from raglab.values import Case

_SPLITS = {"train": "tune", "val": "certify", "test": "report"}
_SPLITS |= {f"oos_{part}": split for part, split in _SPLITS.items()}
_OUT_OF_SCOPE = "oos"
_PAIR = 2


def is_clinc(document: object) -> bool:
    """Whether a JSON document has CLINC150's outer form."""
    return isinstance(document, dict) and bool(document) and document.keys() <= _SPLITS.keys()


def clinc_cases(document: Record, path: Path, max_file_bytes: int) -> Iterator[tuple[Where, Case]]:
    """One case a query, id `part-n` with n from 0: `refuse` where the label is `oos`, else `ok`; no expected sources.

    intent: the label. extra: the intent's domain, where `domains.json` stands beside the file.
    """
    domains = _domains(path.with_name("domains.json"), max_file_bytes)
    for part, items in document.items():
        place = Where(str(path), id=part)
        if not isinstance(items, list):
            raise input_error(place, f"{part} must be a list of pairs", "write [[query, intent], …]", shown(items))
        for n, item in enumerate(items):
            where = place._replace(id=f"{part}-{n}")
            if not isinstance(item, list) or len(item) != _PAIR or not all(isinstance(value, str) for value in item):
                rule = "an item must be a pair of strings, query and intent"
                raise input_error(where, rule, "correct or remove it", shown(item))
            query, intent = item
            status = "refuse" if intent == _OUT_OF_SCOPE else "ok"
            if domains and status == "ok" and intent not in domains:
                rule = "every intent must be in domains.json"
                raise input_error(where, rule, "add it there or remove domains.json", shown(intent))
            extra = {"domain": domains[intent]} if intent in domains else {}
            yield where, Case(f"{part}-{n}", query, status, intent=intent, split=_SPLITS[part], extra=extra)


def _domains(path: Path, max_file_bytes: int) -> dict[str, str]:
    if not path.exists():
        return {}
    table = read_json(path, max_file_bytes)
    where = Where(str(path))
    if not isinstance(table, dict):
        raise input_error(where, "domains must be an object of lists", "write {domain: [intent, …]}", shown(table))
    return {intent: domain for domain in table for intent in texts_of(table, domain, where)}
