"""The page to sign in."""

from dataclasses import dataclass
from typing import ClassVar

from console.chalicelib.pages.frame import Page
from console.chalicelib.pages.parts import Field, Hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInPage(Page):
    """One field for a key."""

    template: ClassVar[str] = "signin.html"
    action: str
    field: Field
    hidden: tuple[Hidden, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BouncePage(Page):
    """Opens itself again, so that the browser sends along the cookies it keeps from others."""

    template: ClassVar[str] = "bounce.html"
    url: str
