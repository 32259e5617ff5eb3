"""What machines call themselves, and which of these names people would take for one another (pure)."""

from collections.abc import Iterable
from unicodedata import category, normalize

from networking.charter import Named
from networking.view import View
from p2pexo.cluster.facts import NODE_KEY, NodeFacts
from p2pexo.cluster.observed import read

_CYRILLIC = "АAаaВBЕEеeІIіiЈJјjКKкkМMмmНHОOоoРPрpСCсcТTтtУYуyХXхxЅSѕsԁdһhԛqԝwӏl"
_GREEK = "ΑAαaΒBΕEΖZΗHΙIιiΚKκkΜMΝNνvΟOοoΡPρpΤTτtΥYυuΧXχx"
_TO_LATIN = str.maketrans(dict(zip((_CYRILLIC + _GREEK)[::2], (_CYRILLIC + _GREEK)[1::2], strict=True)))
"""Letters of other alphabets and those that they are drawn like: the ones in use of Unicode's confusables (UTS 39)."""

_ALIKE = str.maketrans("01i|", "olll")
_PAIRS = (("rn", "m"), ("vv", "w"))


def told_names(view: View) -> list[Named]:
    """What the members say that they are called."""
    told = {peer: read(document[NODE_KEY], NodeFacts) for peer, document in view.facts.items() if NODE_KEY in document}
    return [Named(peer, node.name, node.machine) for peer, node in told.items() if node is not None and node.name]


def look_alike(name: str, others: Iterable[str]) -> str:
    """The first of the others that people might take for the name, or that is the very same; empty if there is none."""
    looks = _looks_of(name)
    return next((each for each in others if _looks_of(each) == looks), "")


def _looks_of(name: str) -> str:
    """Equal for names that look the same: without case, accents, blanks and punctuation, in Latin letters where they could be."""
    plain = "".join(each for each in normalize("NFKD", name) if category(each)[0] != "M")
    folded = normalize("NFKC", plain.translate(_TO_LATIN).casefold()).translate(_ALIKE)
    letters = "".join(each for each in folded if each.isalnum())
    for pair, single in _PAIRS:
        letters = letters.replace(pair, single)
    return letters or folded
