"""Steps that wait for steps, drawn as a tree."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.workflow import StepNode, step_tree


def _drawn(waits: Mapping[str, Sequence[str]]) -> str:
    def text(node: StepNode[str]) -> str:
        return node.step + (f"({' '.join(map(text, node.next))})" if node.next else "")

    return " ".join(map(text, step_tree(waits, str, lambda one: waits[one])))


def test_a_chain_is_a_line_and_a_group_stands_side_by_side() -> None:
    assert _drawn({"a": [], "b": ["a"], "c": ["b"]}) == "a(b(c))"
    assert _drawn({"a": [], "b": [], "c": []}) == "a b c"


def test_what_waits_for_several_stands_under_what_they_have_in_common() -> None:
    assert _drawn({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}) == "a(b c d)"
    assert _drawn({"a": [], "b": [], "sum": ["a", "b"]}) == "a b sum"
    deep = {"a": [], "b": ["a"], "c": ["b"], "d": ["c", "a"], "e": ["d"]}
    assert _drawn(deep) == "a(b(c) d(e))"


def test_the_order_given_does_not_matter_but_among_brothers() -> None:
    assert _drawn({"sum": ["b", "a"], "b": [], "a": []}) == "b a sum"


def test_what_would_be_deeper_than_the_deepest_level_stands_on_it() -> None:
    chain = {str(n): [str(n - 1)] if n else [] for n in range(9)}
    assert _drawn(chain) == "0(1(2(3(4(5 6 7 8)))))"


def test_a_name_of_none_is_left_out_and_a_circle_is_opened() -> None:
    assert _drawn({"a": ["gone"], "b": ["a"]}) == "a(b)"
    assert _drawn({"a": ["b"], "b": ["a"]}) == "a(b)"
    assert _drawn({}) == ""


@given(st.lists(st.sets(st.integers(0, 11)), max_size=12))
def test_every_way_to_a_step_passes_what_it_stands_under(before: list[set[int]]) -> None:
    waits = {
        str(n): sorted(str(one) for one in wanted if one < n) for n, wanted in enumerate(before)
    }
    seen: list[str] = []

    def check(node: StepNode[str], above: tuple[str, ...]) -> None:
        seen.append(node.step)
        for one in above:
            assert not _reached(waits, node.step, without=one)
        for child in node.next:
            check(child, (*above, node.step))

    for root in step_tree(waits, str, lambda one: waits[one]):
        check(root, ())
    assert sorted(seen) == sorted(waits)


def _reached(waits: Mapping[str, Sequence[str]], step: str, *, without: str) -> bool:
    """Tell whether a way leads from a step that waits for none to *step*, not by *without*."""
    if step == without:
        return False
    return not waits[step] or any(_reached(waits, one, without=without) for one in waits[step])
