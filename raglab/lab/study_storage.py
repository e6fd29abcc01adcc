"""Storage of a study (shore): opened, checked before anything is measured, and finished.

It is finished if workers were at it.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path

from raglab.extension_points import extension
from raglab.lab.trial_search import (
    OnTrials,
    Problem,
    StoredStudy,
    check_search,
    open_study,
    quiet_optuna,
)
from raglab.store.files import InputError, Where, input_error

OPENS = 5  # times that a storage is opened: two that make its tables at once disturb each other
_NOT_SHARED = ("sqlite",)  # databases of which Optuna locks no row, so that two may end one trial


def is_shareable(storage: str | Path) -> bool:
    """Whether several processes can share a storage without storing a place twice.

    A database server.
    """
    scheme, separator, _ = str(storage).partition("://")
    return bool(separator) and scheme.partition("+")[0].lower() not in _NOT_SHARED


def check_shareable(storage: str | Path) -> None:
    """Refuse a storage that several processes cannot share without storing a place twice.

    Raises:
      InputError: a folder, or a file of SQLite.
    """
    if not is_shareable(storage):
        rule = (
            "the storage of workers must be a database server, which locks a trial while it is "
            "ended"
        )
        remedy = (
            "state a URL such as postgresql://user@host/name, or leave the workers out: one "
            "process is enough here"
        )
        raise input_error(
            Where(str(storage)), rule, remedy, "SQLite" if "://" in str(storage) else "a folder"
        )


def stored_study(storage: str | Path, name: str, problem: Problem) -> StoredStudy:
    """The study, tried again where others make its tables, or the study, at the same moment."""
    for number in range(1, OPENS):
        try:
            return open_study(storage, name, problem.settings)
        except InputError as error:
            # of a rule, or where nobody else is
            if error.__cause__ is None or not is_shareable(storage):
                raise
        time.sleep(secrets.SystemRandom().uniform(0.1, 0.4) * number)
    return open_study(storage, name, problem.settings)


def check_storage(
    problem: Problem, storage: str | Path | None, study_name: str | None, on_trials: OnTrials | None
) -> None:
    """Refuse a storage that a search cannot go on in, before anything is measured for it.

    Args: see `raglab.tune`.

    Raises:
      InputError: a storage that cannot be opened, or a study of another search.
      ValueError: trials or a batch below 1, an unknown sampler, or `on_trials` where workers have
        been at the study.
    """
    check_search(problem.settings)
    if storage is None:
        return
    name = study_name or problem.name
    with quiet_optuna():
        shared = stored_study(storage, name, problem).is_shared
    if shared and on_trials is not None:
        # Its places are stored whole before any of them is told, so that nothing is left to be
        # ended.
        rule = (
            "on_trials must be left out of a study that workers share, whose places are finished "
            "in any case"
        )
        msg = f"{rule}, got one for study {name!r}; leave it out, or choose another study_name."
        raise ValueError(msg)


def finish_shared_study(
    problem: Problem, storage: str | Path | None, study_name: str | None
) -> None:
    """Where workers have been at the study a search goes on with, finish its places like them.

    Args: see `raglab.tune`; a study that none was at is left as it is.

    Raises:
      MissingExtensionError: workers were at it, and the room `scale` is not installed.
    """
    if storage is None or not is_shareable(storage):
        return
    with quiet_optuna():
        shared = stored_study(storage, study_name or problem.name, problem).is_shared
    if shared:
        work = extension("work_on_study", "scale", "a study that workers share")
        work(problem, storage=storage, study_name=study_name)
