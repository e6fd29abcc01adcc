"""The search of a study.

The same with and without a storage, which Optuna and its users share with it.
"""

# ruff: noqa: PD011 - the values of a trial of Optuna

from __future__ import annotations

import json

import optuna
import pandas as pd
import pytest

from raglab.lab.goals import Goal
from raglab.lab.study_journal import STUDY_FILE
from raglab.replay import sweep
from raglab.store.files import InputError
from study_worlds import (
    PUBLISHED,
    SEARCHED,
    search_problem,
    searched,
    stored_study,
)


class _Killed(Exception):  # noqa: N818 - what happens to it
    pass


def _kill(_):
    raise _Killed


@pytest.mark.parametrize("sampler", ["nsga2", "tpe"])
def test_a_search_killed_in_the_middle_goes_on_as_if_nothing_had_happened(tmp_path, sampler):
    """Kept trials are not proposed again.

    What was cut off in the middle of a batch or of a line is made anew.
    """
    asked = search_problem(sampler=sampler)
    whole = searched(asked)
    with pytest.raises(_Killed):
        searched(asked, tmp_path, on_trials=_kill)
    journal = tmp_path / STUDY_FILE
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(stored_study(tmp_path).trials) == 10
    journal.write_bytes(b"".join(lines[:-3]) + lines[-3][:100])  # a kill, or a full disk
    again = searched(asked, tmp_path)
    pd.testing.assert_frame_equal(again.trials, whole.trials)
    assert [one.values for one in stored_study(tmp_path).trials] == [
        one.values for one in whole.study.trials
    ]
    more = searched(search_problem(40, sampler=sampler), tmp_path)
    pd.testing.assert_frame_equal(more.trials.head(30), whole.trials)
    assert len(stored_study(tmp_path).trials) == 40


def test_trials_are_told_by_path_and_name(tmp_path):
    """Parameters are policy paths, objectives and constraints have names.

    Attributes say policy and counts.
    """
    goal = Goal(targets={"hallucination_rate": 0.1})
    found = searched(search_problem(12, goal=goal), tmp_path)
    study, row = stored_study(tmp_path), found.trials.iloc[7]
    trial = study.trials[7]
    policy = PUBLISHED.replace(*(part for pair in trial.params.items() for part in pair))
    seen = sweep(SEARCHED, [policy]).iloc[0]
    assert trial.user_attrs["policy_id"] == policy.policy_id == row["policy_id"]
    assert trial.user_attrs["counts"]["coverage"] == [seen["coverage_k"], seen["coverage_n"]]
    assert trial.values == [seen["expected_cost"], seen["coverage"]]
    assert list(trial.constraints) == ["hallucination_rate", "min_coverage", "max_over_ask"]
    feasible = {
        one.number for one in study.trials if all(over <= 0.0 for over in one.constraints.values())
    }
    assert feasible == set(found.trials.loc[found.trials["feasible"], "number"])


def test_the_best_trial_is_there_where_none_meets_the_targets():
    """Optuna's `best_trials` are none then.

    The nearest to the targets is the best, of equals the cheapest.
    """
    out_of_reach = searched(
        search_problem(goal=Goal(targets={"hallucination_rate": 0.0, "coverage": 1.0}))
    )
    assert out_of_reach.study.best_trials == []
    table = out_of_reach.trials
    nearest = table[table["violation"] == table["violation"].min()]
    assert out_of_reach.best.values[0] == nearest["expected_cost"].min()
    easy = searched(search_problem(goal=Goal(targets={"over_ask_rate": 1.0}, min_coverage=0.0)))
    assert easy.best.values[0] == easy.trials.loc[easy.trials["feasible"], "expected_cost"].min()


def test_trials_of_others_stay_and_are_not_read(tmp_path):
    """What was run beside the search or queued changes nothing, and is there afterwards."""
    plain = searched(search_problem(20))
    searched(search_problem(10), tmp_path)
    study = stored_study(tmp_path)
    study.optimize(lambda trial: (trial.suggest_float("l2.max_l2", 0.5, 1.0), 0.0), n_trials=1)
    study.enqueue_trial({"similarity.min_similarity": 0.6})
    for _ in range(2):
        found = searched(search_problem(20), tmp_path)
        pd.testing.assert_frame_equal(
            found.trials.drop(columns="number"), plain.trials.drop(columns="number")
        )
        states = [trial.state.name for trial in found.study.trials[10:12]]
        assert states == ["COMPLETE", "WAITING"]
        assert len(found.study.trials) == 22


def test_a_storage_is_believed_in_what_was_tried_alone(tmp_path):
    """Altered values are judged anew, and a trial whose parameters were altered is made again."""
    whole = searched(search_problem())
    searched(search_problem(), tmp_path)
    journal = tmp_path / STUDY_FILE
    lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    for line in lines[5:]:
        line["values"] = [-1.0, 1.0]
    lines[-1]["params"]["l2.max_l2"] = 0.45
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = searched(search_problem(), tmp_path)
    pd.testing.assert_frame_equal(
        found.trials.drop(columns="number"), whole.trials.drop(columns="number")
    )


def test_a_study_of_another_search_is_refused_by_its_name(tmp_path):
    """Without a name no study meets another; with a name the message says what differs."""
    searched(search_problem(10), tmp_path)
    searched(search_problem(10, seed=1), tmp_path)
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / STUDY_FILE))
    assert len(optuna.get_all_study_names(optuna.storages.JournalStorage(backend))) == 2
    searched(search_problem(10), tmp_path, study_name="mine")
    with pytest.raises(InputError, match="'mine' must be of this search, got other trace;"):
        searched(search_problem(10, trace="u"), tmp_path, study_name="mine")


def test_a_storage_by_url(tmp_path):
    """A database takes the trials as a folder does.

    What is none is refused without its password.
    """
    url = f"sqlite:///{tmp_path / 'study.db'}"
    asked = search_problem(4, batch_size=4)
    found = searched(asked, url, study_name="mine")
    pd.testing.assert_frame_equal(found.trials, searched(asked).trials)
    assert (
        optuna.load_study(study_name="mine", storage=url).trials[3].params
        == found.study.trials[3].params
    )
    with pytest.raises(
        InputError, match="a storage must be a folder, or the URL of a database"
    ) as refused:
        searched(asked, "nothing://ann:secret@host/db")
    assert "secret" not in str(refused.value)


def test_each_batch_is_told_and_may_be_the_last():
    """Rows as in the result; only False ends the search."""
    told: list[pd.DataFrame] = []
    found = searched(search_problem(), on_trials=told.append)
    pd.testing.assert_frame_equal(pd.concat(told, ignore_index=True), found.trials)
    ended = searched(search_problem(), on_trials=lambda rows: len(rows) == 0)
    pd.testing.assert_frame_equal(ended.trials, found.trials.head(10))
    assert len(ended.trials) == 10
