"""The cockpit's widget (shore): what a page asks by message, and what the kernel answers.

One ES module of our own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from importlib.resources import files
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, Any

import anywidget
import numpy as np
import traitlets
from pydantic import Field, ValidationError, validate_call

from raglab.extensions.cockpit import views
from raglab.extensions.cockpit.search import SearchJob
from raglab.extensions.cockpit.state import CockpitState
from raglab.extensions.cockpit.views import FILTER_ADAPTER, STRICT_TYPES, SearchText
from raglab.metrics import RATES
from raglab.store.files import input_error, read_text, shown_value
from raglab.store.policies import MAX_POLICY_BYTES, Policy
from raglab.store.strict_yaml import load_yaml
from raglab.values import VectorArray
from raglab.words.characters import visible

SEARCH_TRIALS = 1_000  # of "tune what is not locked"
# past it a browser counts in steps of two
Number = Annotated[float, Field(ge=-(2.0**53), le=2.0**53, allow_inf_nan=False)]
WholeNumber = Annotated[int, Field(ge=-(2**53), le=2**53)]
# A name that begins with a dash is an option to whoever removes or copies all files of a folder.
PLAIN_FILE_NAME = re.compile(r'(?![.~-])[^/\\:*?"<>|]{1,100}')


def _error_notice(error: Exception) -> dict[str, str]:
    """Notice of an error: its message, that of a KeyError without quotes."""
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    if isinstance(error, ValidationError):
        first_error = error.errors(include_url=False, include_context=False)[0]
        error_place, wrong_value = map(shown_value, (first_error["loc"], first_error["input"]))
        received = (
            "" if first_error["type"].startswith("missing") else f", got {wrong_value}"
        )  # else an address
        text = f"a message must fit: {first_error['msg']}{received} at {error_place}."
    return {"kind": "error", "text": visible(text or type(error).__name__)}


def plain_file(file_name: str, folder: Path) -> Path:
    """Path of a policy file in a folder; where there is a file already, it is a policy's.

    Args:
      file_name: a plain name; without a suffix it gets .yaml.

    Raises:
      ValueError: a name with parts of a path, odd characters, a leading dot, dash or tilde, or
        another suffix; one that is too long; a link, or a file that holds no policy.
    """
    path = folder / (file_name if Path(file_name).suffix else f"{file_name}.yaml")
    # a file system takes 255 bytes, and a new file has a longer name until it is whole
    is_plain = PLAIN_FILE_NAME.fullmatch(file_name) and file_name == visible(file_name).strip()
    if not (is_plain and len(file_name.encode()) <= 200 and path.suffix in {".yaml", ".yml"}):
        received_name = visible(shown_value(file_name))
        msg = f"a file must have a plain name such as policy.yaml, got {received_name}."
        raise ValueError(msg)
    if (path.is_symlink() or path.exists()) and not _holds_policy(path):
        raise input_error(
            path, "a file must hold a policy to be written over", "choose another name"
        )
    return path


def _holds_policy(file_path: Path) -> bool:
    """Whether a file, which is no link, holds a policy; notes alone may be anybody's."""
    try:
        policy_text = read_text(file_path, MAX_POLICY_BYTES, follow_links=False)
        Policy.load(file_path)
    except (OSError, ValueError):
        return False
    return bool(set(load_yaml(policy_text, str(file_path), "a policy")) - {"notes"})


def page_file(file_name: str) -> str:
    """Text of the ES module or of its style sheet."""
    return files("raglab.extensions.cockpit").joinpath(file_name).read_text(encoding="utf-8")


def axis_message(cockpit: CockpitState, path: str) -> tuple[dict[str, Any], bytes]:
    """Steps of a threshold as the page takes them.

    What they are, and one buffer (`views.axis_buffer`).
    """
    threshold_axis = cockpit.axis(path)
    threshold = views.sweepable(cockpit.here)[path]
    range_start, range_end = views.value_range(
        cockpit.here, threshold, (cockpit.policy, cockpit.baseline)
    )
    axis_header = {
        "kind": "axis",
        "path": path,
        "n": len(threshold_axis.low),
        "side": threshold_axis.side,
        "at": threshold_axis.at,
        "rates": list(RATES),
        "view_low": range_start,
        "view_high": range_end,
    }
    return axis_header, views.axis_buffer(threshold_axis, cockpit.goal)


class CockpitWidget(anywidget.AnyWidget):
    """The page of a cockpit in a notebook.

    setup: what does not change. page: what is shown, with a number that grows with each. What the
    user does comes as a message `{"do": …}`; one that is refused comes back as a notice, and
    nothing is lost.
    """

    _esm = page_file("cockpit.js")
    _css = page_file("cockpit.css")
    setup = traitlets.Dict().tag(sync=True)
    page = traitlets.Dict().tag(sync=True)

    def __init__(self, cockpit: CockpitState) -> None:
        self.cockpit = cockpit
        self._number, self._stop = 0, Event()
        self._searching: Thread | None = None
        self._progress: dict[str, int] = {}  # of the search that runs
        self.folder = Path.cwd()  # of the notebook; policies are saved there
        super().__init__(setup=cockpit.setup, page=self._next_page())
        self.on_msg(lambda _, page_message, __: self.take(page_message))

    # JSON
    def _next_page(
        self,
        notice: Mapping[str, str] | None = None,
        **further_fields: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        self._number += 1
        search_progress = self._progress if self.cockpit.searching else None
        search_state = {
            "tuning": search_progress,
            "certificate": None,
            "notice": notice,
        } | further_fields
        return {"number": self._number, **self.cockpit.page(), **search_state}

    # JSON
    def refresh(self, notice: Mapping[str, str] | None = None, **more: Any) -> None:  # noqa: ANN401
        """Show the policy as it stands."""
        with self.cockpit.guard:
            self.page = self._next_page(notice, **more)

    def take(self, message: Any) -> None:  # noqa: ANN401 - whatever a page sends
        """Do what a page asks, all of it or nothing; an error is shown there."""
        try:
            message_fields = dict(message)
            action = ACTIONS[_one_of(str(message_fields.pop("do", None)), ACTIONS)]
            with self.cockpit.restored_on_error():
                action(self, **message_fields)
        except Exception as action_error:  # noqa: BLE001 - whatever it is, the page must go on
            self.refresh(_error_notice(action_error))

    def _listed(self, path: str) -> str:
        """The path of a threshold that the page lists or that a case's flips name."""
        return _one_of(path, views.sweepable(self.cockpit.here))

    # What a page may ask, by the name of the message; `ACTIONS` checks the fields.

    def do_set(self, path: SearchText, value: WholeNumber | Number | None) -> None:
        """Set a threshold to a value; null switches it off."""
        self.cockpit.set(self._listed(path), value)
        self.refresh()

    def do_drop(self, path: SearchText, step: WholeNumber, number: WholeNumber = 0) -> None:  # noqa: ARG002
        """Set a threshold to a step of its axis; number: of the page that the axis was of."""
        self.cockpit.drop(self._listed(path), step)
        self.refresh()

    def do_switch(self, path: SearchText, on: bool) -> None:  # noqa: FBT001 - a field by name
        """Switch a gate that the page shows."""
        gate_switches = {row.switch for row in views.gate_rows(self.cockpit.here)} - {""}
        self.cockpit.set(_one_of(path, gate_switches), on)
        self.refresh()

    def do_lock(self, path: SearchText, on: bool) -> None:  # noqa: FBT001 - a field by name
        """Lock a threshold or a gate."""
        self.cockpit.lock(path, on)
        self.refresh()

    def do_cost(self, label: SearchText, outcome: SearchText, value: Number) -> None:
        """Change a cost."""
        was_searching = self.cockpit.searching
        self.cockpit.set_cost(label, outcome, value)
        self.refresh(
            {"kind": "info", "text": "The search ended: costs changed."} if was_searching else None
        )
        self._send_trials(0)

    def do_filter(self, filter: dict[SearchText, Any]) -> None:  # noqa: A002 - name of a field
        """List other cases."""
        self.cockpit.filter = FILTER_ADAPTER.validate_python(filter)
        self.refresh()

    def do_undo(self) -> None:
        """Take the last move back."""
        self.cockpit.undo()
        self.refresh()

    def do_redo(self) -> None:
        """Make it again."""
        self.cockpit.redo()
        self.refresh()

    def do_reset(self) -> None:
        """Go back to the baseline."""
        self.cockpit.reset()
        self.refresh()

    def do_ready(self) -> None:
        """Send a page that was opened, the first or another one, the trials so far."""
        self._send_trials(0)

    def _send_trials(self, first_trial: int) -> None:
        trial_points = np.ascontiguousarray(self.cockpit.trials[first_trial:], dtype="<f4")
        n_trials = len(self.cockpit.trials)
        self.send(
            {"kind": "trials", "from": first_trial, "n": len(trial_points), "total": n_trials},
            [trial_points.tobytes()],
        )

    def do_enter(self, path: SearchText) -> None:
        """Send the axis of a threshold."""
        axis_header, axis_bytes = axis_message(self.cockpit, self._listed(path))
        self.send({**axis_header, "number": self._number}, [axis_bytes])

    def do_case(self, id: SearchText) -> None:  # noqa: A002 - name of a field
        """Send a case."""
        case_fields = views.case_view(self.cockpit.here, id, labelled=self.cockpit.labelled)
        self.send({"kind": "case", **case_fields})

    def do_flips(self, id: SearchText) -> None:  # noqa: A002 - name of a field
        """Send its flips, which take longer, when the case is on the screen."""
        self.send({"kind": "flips", "id": id, "flips": views.flip_views(self.cockpit.here, id)})

    def do_save(self, file: SearchText = "") -> None:
        """Save the policy as a file of the notebook's folder."""
        file_name = file or f"policy-{self.cockpit.policy.policy_id}.yaml"
        path = self.cockpit.save(plain_file(file_name, self.folder))
        self.send({"kind": "saved", "file": path.name})

    def do_report(self) -> None:
        """Judge on the sealed split."""
        self.cockpit.report()
        self.refresh({"kind": "info", "text": self.cockpit.report_views[-1].text})

    def do_certify(self) -> None:
        """Certify on the split for it."""
        certification = self.cockpit.certify()
        is_certified = certification.policy is not None
        self.refresh(certificate={"ok": is_certified, "text": certification.certificate.reason})

    def do_tune(self) -> None:
        """Search what is not locked, unless a search runs."""
        if self.cockpit.searching:
            return
        job = self.cockpit.begin_search()
        self._stop, self._progress = Event(), {"done": 0, "total": SEARCH_TRIALS}
        self.refresh()
        self._searching = Thread(target=self._search, args=(job, self._stop), daemon=True)
        self._searching.start()

    def do_stop(self) -> None:
        """End the search with what it has."""
        self._stop.set()

    def _search(self, search_job: SearchJob, stop_event: Event) -> None:
        """Tune in a thread of its own, so that messages are answered meanwhile.

        The plane fills with the trials.
        """
        cockpit = self.cockpit

        def on_batch(points: VectorArray) -> bool:
            self._send_trials(len(cockpit.trials) - len(points))
            self._progress = {"done": self._progress["done"] + len(points), "total": SEARCH_TRIALS}
            # A page of the same number: it tells of progress, and what is under way there goes on.
            self.page = {**self.page, "tuning": self._progress}
            return not stop_event.is_set()

        try:
            best_found = cockpit.run_search(search_job, trials=SEARCH_TRIALS, on_batch=on_batch)
        except Exception as search_error:  # noqa: BLE001 - a thread has nobody else to tell
            self.refresh(_error_notice(search_error))
            return
        if best_found is not None:
            is_start = best_found.policy_id == search_job.start.policy_id
            result_text = (
                "found no better one" if is_start else "found this policy; undo takes it back"
            )
            self.refresh(
                {
                    "kind": "info",
                    "text": f"The search {result_text}. "
                    "Its rates are of the cases it chose on: they flatter.",
                }
            )


# Each takes the fields of its message alone, all of their type and in their range.
ACTIONS: Mapping[str, Callable[..., None]] = {
    name.removeprefix("do_"): validate_call(config=STRICT_TYPES)(act)
    for name, act in vars(CockpitWidget).items()
    if name.startswith("do_")
}


def _one_of(page_name: str, page_names: Collection[str]) -> str:
    """The name, which must be one of those that the page shows.

    Raises:
      ValueError: it is another.
    """
    if page_name not in page_names:
        msg = f"a message must name what the page shows, got {visible(shown_value(page_name))}."
        raise ValueError(msg)
    return page_name
