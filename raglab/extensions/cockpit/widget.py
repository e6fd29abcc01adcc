"""The cockpit's widget (shore): what a page asks by message, and what the kernel answers.

One ES module of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from threading import Event, Thread
from typing import Any

import anywidget
import numpy as np
import traitlets
from numpy.typing import NDArray

from raglab.extensions.cockpit import views
from raglab.extensions.cockpit.messages import (
    CaseMessage,
    CostMessage,
    DropMessage,
    FilterMessage,
    Message,
    PathMessage,
    SaveMessage,
    SetMessage,
    SwitchMessage,
    checked,
    plain_file,
)
from raglab.extensions.cockpit.search import SearchJob
from raglab.extensions.cockpit.state import CockpitState
from raglab.extensions.cockpit.views import Filter
from raglab.replaying.breakpoints import swept_paths
from raglab.store.files import shown_value
from raglab.words.characters import visible

FILES = files("raglab.extensions.cockpit")
TRIALS = 1_000  # of "tune what is not locked"
ENDED = "The search ended, since costs changed: its trials were of the old ones."


def _error_notice(error: Exception) -> dict[str, str]:
    """Notice of an error: its message, that of a KeyError without quotes."""
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    return {"kind": "error", "text": visible(text or type(error).__name__)}


def module_text() -> str:
    """The ES module."""
    return FILES.joinpath("cockpit.js").read_text(encoding="utf-8")


def style_text() -> str:
    """Its style sheet."""
    return FILES.joinpath("cockpit.css").read_text(encoding="utf-8")


def axis_message(cockpit: CockpitState, path: str) -> tuple[dict[str, Any], bytes]:
    """Steps of a threshold as the page takes them.

    What they are, and one buffer (`views.axis_buffer`).
    """
    axis = cockpit.axis(path)
    swept = next(
        threshold for threshold in views.swept_rows(cockpit.here) if threshold.path == path
    )
    marks = (cockpit.policy.value(path), cockpit.baseline.value(path))
    low, high = views.value_range(cockpit.here, swept, marks)
    rates = list(views.AXIS_RATES)
    head = {"path": path, "n": len(axis.low), "side": axis.side, "at": axis.at, "rates": rates}
    return {"kind": "axis", **head, "view_low": low, "view_high": high}, views.axis_buffer(
        axis, cockpit.goal
    )


class CockpitWidget(anywidget.AnyWidget):
    """The page of a cockpit in a notebook.

    setup: what does not change. page: what is shown, with a number that grows with each. What the
    user does comes as a message `{"do": …}`; one that is refused comes back as a notice, and
    nothing is lost.
    """

    _esm = module_text()
    _css = style_text()
    setup = traitlets.Dict().tag(sync=True)
    page = traitlets.Dict().tag(sync=True)

    def __init__(self, cockpit: CockpitState) -> None:
        self.cockpit = cockpit
        self._number, self._stop = 0, Event()
        self._searching: Thread | None = None
        self._progress = {"done": 0, "total": TRIALS}  # of the search that runs
        self.folder = Path.cwd()  # of the notebook; policies are saved there
        super().__init__(setup=cockpit.setup, page=self._next_page())
        self.on_msg(lambda _, message, __: self.take(message))

    # JSON
    def _next_page(
        self,
        notice: Mapping[str, str] | None = None,
        **more: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        self._number += 1
        tuning = self._progress if self.cockpit.searching else None
        state = {"tuning": tuning, "certificate": None, "notice": notice} | more
        return {"number": self._number, **self.cockpit.page(), **state}

    # JSON
    def refresh(self, notice: Mapping[str, str] | None = None, **more: Any) -> None:  # noqa: ANN401
        """Show the policy as it stands."""
        with self.cockpit.guard:
            self.page = self._next_page(notice, **more)

    def take(self, message: object) -> None:
        """Do what a page asks, all of it or nothing; an error is shown there."""
        try:
            request = checked(message)
            with self.cockpit.restored_on_error():
                ACTS[request.do](self, request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the page must go on
            self.refresh(_error_notice(error))

    def _listed(self, path: str) -> str:
        """The path of a threshold that the page lists or that a case's flips name."""
        here = self.cockpit.here
        if (
            path
            not in {row.path for row in views.swept_rows(here)}
            | swept_paths(here.evidence.known).keys()
        ):
            msg = f"a message must name a threshold of the page, got {visible(shown_value(path))}."
            raise ValueError(msg)
        return path

    def _switch(self, path: str) -> str:
        """The path of a switch that the page shows."""
        if path not in {row.switch for row in views.gate_rows(self.cockpit.here)} - {""}:
            msg = f"a message must name a switch of the page, got {visible(shown_value(path))}."
            raise ValueError(msg)
        return path

    def _set(self, message: SetMessage) -> None:
        self.cockpit.set(self._listed(message.path), message.value)
        self.refresh()

    def _drop(self, message: DropMessage) -> None:
        self.cockpit.drop(self._listed(message.path), message.step)
        self.refresh()

    def _switched(self, message: SwitchMessage) -> None:
        self.cockpit.set(self._switch(message.path), message.on)
        self.refresh()

    def _lock(self, message: SwitchMessage) -> None:
        self.cockpit.lock(message.path, message.on)
        self.refresh()

    def _cost(self, message: CostMessage) -> None:
        searched = self.cockpit.searching
        self.cockpit.set_cost(message.label, message.outcome, message.value)
        self.refresh({"kind": "info", "text": ENDED} if searched else None)
        self._send_trials(0)

    def _filter(self, message: FilterMessage) -> None:
        fields = message.filter.model_dump()
        pair = fields.pop("slice")
        search = fields.pop("search") or ""
        self.cockpit.filter = Filter(
            **fields, slice=None if pair is None else (pair[0], pair[1]), search=search
        )
        self.refresh()

    def _undo(self, _: Message) -> None:
        self.cockpit.undo()
        self.refresh()

    def _redo(self, _: Message) -> None:
        self.cockpit.redo()
        self.refresh()

    def _reset(self, _: Message) -> None:
        self.cockpit.reset()
        self.refresh()

    def _opened(self, _: Message) -> None:
        """A page was opened, the first or another one: it takes the trials that there are."""
        self._send_trials(0)

    def _send_trials(self, begin: int) -> None:
        points = np.ascontiguousarray(self.cockpit.trials[begin:], dtype="<f4")
        total = len(self.cockpit.trials)
        self.send(
            {"kind": "trials", "from": begin, "n": len(points), "total": total}, [points.tobytes()]
        )

    def _entered(self, message: PathMessage) -> None:
        head, steps = axis_message(self.cockpit, self._listed(message.path))
        self.send({**head, "number": self._number}, [steps])

    def _case(self, message: CaseMessage) -> None:
        view = views.case_view(self.cockpit.here, message.id, labelled=self.cockpit.labelled)
        self.send({"kind": "case", **view})

    def _flips(self, message: CaseMessage) -> None:
        """Take longer than the case, and are asked for when that is on the screen."""
        case_id = message.id
        self.send(
            {"kind": "flips", "id": case_id, "flips": views.flip_views(self.cockpit.here, case_id)}
        )

    def _saved(self, message: SaveMessage) -> None:
        name = message.file or f"policy-{self.cockpit.policy.policy_id}.yaml"
        path = self.cockpit.save(plain_file(name, self.folder))
        self.send({"kind": "saved", "file": path.name})  # in the notebook's folder

    def _reported(self, _: Message) -> None:
        self.cockpit.report()
        self.refresh({"kind": "info", "text": self.cockpit.report_views[-1].text})

    def _certified(self, _: Message) -> None:
        certification = self.cockpit.certify()
        ok = certification.policy is not None
        self.refresh(certificate={"ok": ok, "text": certification.certificate.reason})

    def _tune(self, _: Message) -> None:
        if self.cockpit.searching:
            return
        job, self._stop, self._progress = (
            self.cockpit.begin_search(),
            Event(),
            {"done": 0, "total": TRIALS},
        )
        self.refresh()
        self._searching = Thread(target=self._search, args=(job, self._stop), daemon=True)
        self._searching.start()

    def _stopped(self, _: Message) -> None:
        self._stop.set()

    def _search(self, job: SearchJob, stop: Event) -> None:
        """Tune in a thread of its own, so that messages are answered meanwhile.

        The plane fills with the trials.
        """
        cockpit = self.cockpit

        def on_batch(points: NDArray[np.float32]) -> bool:
            self._send_trials(len(cockpit.trials) - len(points))
            self._progress = {"done": self._progress["done"] + len(points), "total": TRIALS}
            # A page of the same number: it tells of progress, and what is under way there goes on.
            self.page = {**self.page, "tuning": self._progress}
            return not stop.is_set()

        try:
            best = cockpit.run_search(job, trials=TRIALS, on_batch=on_batch)
        except Exception as error:  # noqa: BLE001 - a thread has nobody else to tell
            self.refresh(_error_notice(error))
            return
        if best is not None:
            same = best.policy_id == job.start.policy_id
            result = "found no better one" if same else "found this policy; undo takes it back"
            text = (
                f"The search {result}. It was chosen on the cases shown, so that its rates flatter."
            )
            self.refresh({"kind": "info", "text": text})


# Each takes the message of its name, as `checked` made it.
ACTS: Mapping[str, Callable[[CockpitWidget, Any], None]] = {
    "set": CockpitWidget._set,  # noqa: SLF001 - a table of its own methods
    "drop": CockpitWidget._drop,  # noqa: SLF001
    "switch": CockpitWidget._switched,  # noqa: SLF001
    "lock": CockpitWidget._lock,  # noqa: SLF001
    "cost": CockpitWidget._cost,  # noqa: SLF001
    "filter": CockpitWidget._filter,  # noqa: SLF001
    "undo": CockpitWidget._undo,  # noqa: SLF001
    "redo": CockpitWidget._redo,  # noqa: SLF001
    "reset": CockpitWidget._reset,  # noqa: SLF001
    "ready": CockpitWidget._opened,  # noqa: SLF001
    "enter": CockpitWidget._entered,  # noqa: SLF001
    "case": CockpitWidget._case,  # noqa: SLF001
    "flips": CockpitWidget._flips,  # noqa: SLF001
    "save": CockpitWidget._saved,  # noqa: SLF001
    "report": CockpitWidget._reported,  # noqa: SLF001
    "certify": CockpitWidget._certified,  # noqa: SLF001
    "tune": CockpitWidget._tune,  # noqa: SLF001
    "stop": CockpitWidget._stopped,  # noqa: SLF001
}
