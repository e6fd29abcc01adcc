"""The cockpit's widget (shore): what a page asks by message, and what the kernel answers; one ES module of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from threading import Event, Thread
from typing import Any

import anywidget
import numpy as np
import traitlets
from numpy.typing import NDArray

from raglab.extensions.cockpit import views
from raglab.extensions.cockpit.search import SearchJob
from raglab.extensions.cockpit.state import CockpitState
from raglab.extensions.cockpit.views import Filter

FILES = files("raglab.extensions.cockpit")
TRIALS = 1_000  # of "tune what is not locked"
ENDED = "The search ended, since costs changed: its trials were of the old ones."
Message = Mapping[str, Any]


def module_text() -> str:
    """The ES module."""
    return FILES.joinpath("cockpit.js").read_text(encoding="utf-8")


def style_text() -> str:
    """Its style sheet."""
    return FILES.joinpath("cockpit.css").read_text(encoding="utf-8")


def axis_message(cockpit: CockpitState, path: str) -> tuple[dict[str, Any], bytes]:
    """Steps of a threshold as the page takes them: what they are, and one buffer (`views.axis_buffer`)."""
    axis = cockpit.axis(path)
    swept = next(one for one in views.swept_rows(cockpit.here) if one.path == path)
    marks = (cockpit.policy.value(path), cockpit.baseline.value(path))
    low, high = views.value_range(cockpit.here, swept, marks)
    rates = list(views.AXIS_RATES)
    head = {"path": path, "n": len(axis.low), "side": axis.side, "at": axis.at, "rates": rates}
    return {"kind": "axis", **head, "view_low": low, "view_high": high}, views.axis_buffer(axis, cockpit.goal)


class CockpitWidget(anywidget.AnyWidget):
    """The page of a cockpit in a notebook.

    setup: what does not change. page: what is shown, with a number that grows with each. What the user does comes as a
    message `{"do": …}`; one that is refused comes back as a notice, and nothing is lost.
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
        super().__init__(setup=cockpit.setup, page=self._next_page())
        self.on_msg(lambda _, message, __: self.take(message))

    def _next_page(self, notice: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        self._number += 1
        tuning = self._progress if self.cockpit.searching else None
        state = {"tuning": tuning, "certificate": None, "notice": notice} | more
        return {"number": self._number, **self.cockpit.page(), **state}

    def refresh(self, notice: Mapping[str, str] | None = None, **more: Any) -> None:  # noqa: ANN401 - JSON
        """Show the policy as it stands."""
        with self.cockpit.guard:
            self.page = self._next_page(notice, **more)

    def take(self, message: object) -> None:
        """Do what a page asks; an error is shown there."""
        act = ACTS.get(str(message.get("do"))) if isinstance(message, Mapping) else None
        if act is None or not isinstance(message, Mapping):
            self.refresh({"kind": "error", "text": f"a message must say what to do, got {str(message)[:80]!r}."})
            return
        try:
            with self.cockpit.guard:
                act(self, message)
        except (KeyError, TypeError, ValueError, OSError) as error:
            self.refresh({"kind": "error", "text": str(error.args[0] if error.args else error)})

    def _moved(self, message: Message) -> None:
        cockpit, what, notice = self.cockpit, message["do"], None
        if what == "set":
            cockpit.set(str(message["path"]), message["value"])
        elif what == "drop":
            cockpit.drop(str(message["path"]), int(message["step"]))
        elif what == "switch":
            cockpit.set(str(message["path"]), bool(message["on"]))
        elif what == "lock":
            cockpit.lock(str(message["path"]), bool(message["on"]))
        elif what == "cost":
            searched = cockpit.searching
            cockpit.price(str(message["label"]), str(message["outcome"]), message["value"])
            notice = {"kind": "info", "text": ENDED} if searched else None
            self._send_trials(0)
        elif what == "filter":
            cockpit.filter = _filter(message["filter"])
        else:
            {"undo": cockpit.undo, "redo": cockpit.redo, "reset": cockpit.reset}[what]()
        self.refresh(notice)

    def _opened(self, _: Message) -> None:
        """A page was opened, the first or another one: it takes the trials that there are."""
        self._send_trials(0)

    def _send_trials(self, begin: int) -> None:
        points = np.ascontiguousarray(self.cockpit.trials[begin:], dtype="<f4")
        total = len(self.cockpit.trials)
        self.send({"kind": "trials", "from": begin, "n": len(points), "total": total}, [points.tobytes()])

    def _entered(self, message: Message) -> None:
        head, steps = axis_message(self.cockpit, str(message["path"]))
        self.send({**head, "number": self._number}, [steps])

    def _case(self, message: Message) -> None:
        found = views.case_view(self.cockpit.here, str(message["id"]), labelled=self.cockpit.labelled)
        self.send({"kind": "case", **found})

    def _flips(self, message: Message) -> None:
        """Take longer than the case, and are asked for when that is on the screen."""
        case_id = str(message["id"])
        self.send({"kind": "flips", "id": case_id, "flips": views.flip_views(self.cockpit.here, case_id)})

    def _saved(self, message: Message) -> None:
        path = self.cockpit.save(str(message.get("file") or f"policy-{self.cockpit.policy.policy_id}.yaml"))
        self.send({"kind": "saved", "file": str(path)})

    def _reported(self, _: Message) -> None:
        self.cockpit.report()
        self.refresh({"kind": "info", "text": self.cockpit.looks[-1].text})

    def _certified(self, _: Message) -> None:
        made = self.cockpit.certify()
        ok = made.policy is not None
        self.refresh(certificate={"ok": ok, "text": made.certificate.reason})

    def _tune(self, _: Message) -> None:
        if self.cockpit.searching:
            return
        job, self._stop, self._progress = self.cockpit.begin_search(), Event(), {"done": 0, "total": TRIALS}
        self.refresh()
        self._searching = Thread(target=self._search, args=(job, self._stop), daemon=True)
        self._searching.start()

    def _stopped(self, _: Message) -> None:
        self._stop.set()

    def _search(self, job: SearchJob, stop: Event) -> None:
        """Tune in a thread of its own, so that messages are answered meanwhile; the plane fills with the trials."""
        cockpit = self.cockpit

        def on_batch(points: NDArray[np.float32]) -> bool:
            self._send_trials(len(cockpit.trials) - len(points))
            self._progress = {"done": self._progress["done"] + len(points), "total": TRIALS}
            # A page of the same number: it tells of progress, and what is under way there goes on.
            self.page = {**self.page, "tuning": self._progress}
            return not stop.is_set()

        try:
            best = cockpit.run_search(job, trials=TRIALS, on_batch=on_batch)
        except ValueError as error:
            self.refresh({"kind": "error", "text": str(error)})
            return
        if best is not None:
            same = best.policy_id == job.start.policy_id
            result = "found no better one" if same else "found this policy; undo takes it back"
            text = f"The search {result}. It was chosen on the cases shown, so that its rates flatter."
            self.refresh({"kind": "info", "text": text})


def _filter(asked: Message) -> Filter:
    """A filter as a page states it; what it does not name is any."""
    texts = {
        name: str(asked[name]) for name in ("kind", "label", "decision", "decided_by") if asked.get(name) is not None
    }
    pair = asked.get("slice")
    column = None if pair is None else (str(pair[0]), str(pair[1]))
    return Filter(**texts, slice=column, search=str(asked.get("search") or ""))


Act = Callable[[CockpitWidget, Message], None]
ACTS: Mapping[str, Act] = {
    **dict.fromkeys(
        ("set", "drop", "switch", "lock", "cost", "filter", "undo", "redo", "reset"),
        CockpitWidget._moved,  # noqa: SLF001 - a table of its own methods
    ),
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
