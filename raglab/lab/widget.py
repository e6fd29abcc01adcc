"""A response that asks, as buttons in a notebook: the one file that knows ipywidgets."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from raglab.default_learner import OTHER
from raglab.lab.response import Response
from raglab.lab.session import reply

if TYPE_CHECKING:
    from raglab.lab.live import Lab

_WORDS = {
    "en": {"yes": "Yes", "no": "No", OTHER: "Other", "hint": "your own words"},
    "fr": {"yes": "Oui", "no": "Non", OTHER: "Autre", "hint": "avec vos mots"},
}
_FRENCH = frozenset({"autre chose", "une autre page, par son numéro"})  # texts of the option `other`


def buttons(said: Response, *, lab: Lab, then: Callable[[Response], object] | None = None) -> Any:  # noqa: ANN401 - a widget
    """A box with the question, a button each for yes, no and the other values, and a field for anything else.

    A click replies once: the buttons go and the answer stands in their place. A reply that is refused is shown, and
    the buttons stay.

    Args:
      said: a response whose `clarification` asks. lab: that gave it. then: called with the answer.

    Raises:
      ValueError: the response asks nothing.

    Example: `raglab.buttons(raglab.ask("Who is the insurer?", lab=lab, documents=["a.md"]), lab=lab)`
    """
    asked = said["clarification"]
    if asked is None:
        msg = f"buttons need a response that asks, got one of status {said['status']!r}; show the response itself."
        raise ValueError(msg)
    import ipywidgets as widgets

    words = _WORDS["fr" if said["options"][-1]["text"] in _FRENCH else "en"]
    shown, box = widgets.Output(), widgets.VBox()
    own = widgets.Text(placeholder=words["hint"])

    def answered(text: str) -> None:
        shown.clear_output()
        try:
            done = reply(said["request_id"], text, lab=lab)
        except ValueError as error:
            shown.append_stdout(f"{error}\n")
            return
        box.children = (head, shown)
        shown.append_display_data(done)
        if then is not None:
            then(done)

    def button(label: str, text: Callable[[], str]) -> Any:  # noqa: ANN401 - a widget
        made = widgets.Button(description=label, layout=widgets.Layout(width="auto"))
        made.on_click(lambda _: answered(text()))
        return made

    head = widgets.HTML(escape(asked["question_to_user"]))  # breaks its lines, as a label does not
    others = [one for one in said["options"] if one["value"] not in {asked["proposed_default"], OTHER}]
    agreed = [] if asked["proposed_default"] is None else [button(words["yes"], lambda: "yes")]
    row = [
        *agreed,
        button(words["no"], lambda: "no"),
        *(button(one["text"], lambda value=one["value"]: value) for one in others),  # type: ignore[misc]
    ]
    box.children = (head, widgets.HBox(row), widgets.HBox([own, button(words[OTHER], lambda: own.value)]), shown)
    return box
