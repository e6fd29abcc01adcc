"""Buttons (shore): a question to the user in a notebook, answered by a click."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from raglab.default_learner import OTHER
from raglab.live.ask import reply
from raglab.live.response import Response
from raglab.live.system import System
from raglab.values import refuse
from raglab.words.characters import visible
from raglab.words.text import NO_MATH, html_text

_WORDS = {
    "en": {"yes": "Yes", "no": "No", OTHER: "Other", "hint": "your own words"},
    "fr": {"yes": "Oui", "no": "Non", OTHER: "Autre", "hint": "avec vos mots"},
}
# texts of the option `other`
_FRENCH = frozenset({"autre chose", "une autre page, par son numéro"})


# a widget
def buttons(
    response: Response,
    *,
    system: System,
    on_answer: Callable[[Response], object] | None = None,
) -> Any:  # noqa: ANN401
    """A box with the question, buttons for yes, no and other values, and a field for the rest.

    A click replies once: the answer replaces the buttons. Where the request is shown again, new
    buttons replace them. A reply that is refused is shown, and the buttons stay.

    Args:
      response: whose `clarification` asks.
      system: the system that gave it.
      on_answer: function that is called with the answer.

    Raises:
      ValueError: the response asks nothing.

    Example:
      `raglab.live.buttons(raglab.ask("Who is the vendor?", system=system, documents=["a.md"]),
      system=system)`
    """
    question = response["clarification"]
    if question is None:
        value = f"one of status {response['status']!r}"
        refuse("buttons need a response that asks", value, "show the response itself")
    import ipywidgets as widgets

    words = _WORDS["fr" if response["options"][-1]["text"] in _FRENCH else "en"]
    shown, box = widgets.Output(), widgets.VBox()
    own = widgets.Text(placeholder=words["hint"])

    def answer(text: str) -> None:
        if choices not in box.children:
            return  # the second click of two, on buttons that are gone
        shown.clear_output()
        try:
            final = reply(response["request_id"], text, system=system)
        except ValueError as error:
            shown.append_stdout(f"{visible(str(error))}\n")
            return
        if final["clarification"] is not None:
            box.children = buttons(final, system=system, on_answer=on_answer).children
            return
        box.children = (head, shown)
        shown.append_display_data(final)
        if on_answer is not None:
            on_answer(final)

    def button(label: str, act: Callable[[], None]) -> Any:  # noqa: ANN401 - a widget
        widget = widgets.Button(description=label, layout=widgets.Layout(width="auto"))
        widget.on_click(lambda _: act())
        return widget

    question_html = html_text(question["question_to_user"])
    # breaks its lines, as a label does not
    head = widgets.HTML(f'<span class="{NO_MATH}">{question_html}</span>')
    proposed = question["proposed_default"]
    texts = {} if proposed is None else {"yes": words["yes"]}
    texts["no"] = words["no"]
    for option in response["options"]:
        if option["value"] not in {proposed, OTHER}:
            texts[option["value"]] = visible(option["text"])
    choices = widgets.HBox([button(text, partial(answer, value)) for value, text in texts.items()])
    box.children = (
        head,
        choices,
        widgets.HBox([own, button(words[OTHER], lambda: answer(own.value))]),
        shown,
    )
    return box
