import pytest

from p2pexo.node.names import look_alike

OTHERS = ("studio", "Anna's Mac mini", "modem-10", "ÆON", "🍎")


@pytest.mark.parametrize(
    ("name", "taken_for"),
    [
        ("studio", "studio"),
        ("Studio", "studio"),
        ("ＳＴＵＤＩＯ", "studio"),
        ("ѕtudio", "studio"),
        ("ΣTUDIO", ""),
        ("stud1o", "studio"),
        ("studi0", "studio"),
        ("stúdio", "studio"),
        ("s t u d i o", "studio"),
        ("studіо", "studio"),
        ("ЅТudіo", "studio"),
        ("studlo", "studio"),
        ("annas mac-mini", "Anna's Mac mini"),
        ("Anna’s Mac mini", "Anna's Mac mini"),
        ("modern-lO", "modem-10"),
        ("æon", "ÆON"),
        ("🍎", "🍎"),
        ("🍏", ""),
        ("studio-2", ""),
        ("attic", ""),
        ("студия", ""),
        ("", ""),
    ],
)
def test_names_that_look_the_same_are_taken_for_one_another(name: str, taken_for: str) -> None:
    assert look_alike(name, OTHERS) == taken_for


def test_where_nobody_is_named_nothing_looks_alike() -> None:
    assert look_alike("studio", ()) == ""
