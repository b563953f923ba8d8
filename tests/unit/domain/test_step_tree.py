"""Steps that wait for steps, drawn as a tree."""

from collections.abc import Mapping, Sequence

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


def test_what_would_be_deeper_than_the_deepest_level_stands_on_it() -> None:
    chain = {str(n): [str(n - 1)] if n else [] for n in range(9)}
    assert _drawn(chain) == "0(1(2(3(4(5 6 7 8)))))"


def test_a_name_of_none_is_left_out_and_a_circle_is_opened() -> None:
    assert _drawn({"a": ["gone"], "b": ["a"]}) == "a(b)"
    assert _drawn({"a": ["b"], "b": ["a"]}) == "a(b)"
    assert _drawn({}) == ""
