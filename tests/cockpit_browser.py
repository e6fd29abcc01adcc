"""The cockpit's page in a browser: what it shows, and how a hand moves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

PATH = "similarity.min_similarity"


def cockpit_of(page: Page) -> Any:
    """The cockpit's element."""
    return page.locator(".raglab-cockpit").first


def figure(page: Page, rate: str) -> str:
    """Counts of a rate as they are shown."""
    return str(cockpit_of(page).locator(f'.rate[data-rate="{rate}"] .figures').inner_text())


def policy_id(page: Page) -> str:
    """Id of the policy that is shown."""
    return str(cockpit_of(page).locator("header code").first.inner_text())


def turned(page: Page, was: str, *, back: bool = False) -> None:
    """Wait until another policy is shown, or the same one again."""
    told = "(was) => (document.querySelector('.raglab-cockpit header code').innerText === was.id) === was.back"
    page.wait_for_function(told, arg={"id": was, "back": back})


def slide(page: Page, path: str, share: float) -> None:
    """Drag a slider's handle to a share of its width, in steps."""
    slider = cockpit_of(page).locator(f'.threshold[data-path="{path}"] .slider')
    slider.scroll_into_view_if_needed()
    handle, box = slider.locator(".handle").bounding_box(), slider.bounding_box()
    assert handle is not None
    assert box is not None
    y = handle["y"] + handle["height"] / 2
    page.mouse.move(handle["x"] + handle["width"] / 2, y)
    page.wait_for_timeout(300)  # the axis comes while the pointer rests
    page.mouse.down()
    page.mouse.move(box["x"] + share * box["width"], y, steps=12)
