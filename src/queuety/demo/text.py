"""What is computed from text: words, sentences, telling words, a summary. Pure: no files and no workflow."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

LONGEST_SENTENCE: Final = 320
"""Characters of a sentence that are shown."""
CANDIDATE_WORDS: Final = (5, 80)
"""How many words a sentence has, at least and at most, that may stand in a summary."""
FIRST_SENTENCE_BONUS: Final = 1.2

_WORD: Final = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_PARAGRAPH_END: Final = re.compile(r"\n[ \t\r]*\n")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?…])([\"'”’)\]]*)\s+(?=[\"'“‘(\[]*[^\W_])|(?<=[。！？])")
_ABBREVIATED: Final = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Prof|No|vs|etc|cf|e\.g|i\.e)|\b[^\W\d_])\.$", re.IGNORECASE)
_UNSEEN: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")

_COMMON_WORDS: Final = """
    a about above after again against all also although am an and any are as at be because been before being below
    between both but by came can cannot come could did do does doing done down during each either else even ever every
    few first for from further get go got had has hath have having he her here hers herself him himself his how however
    i if in into is it its itself just know last let like made make many may me might mine more most much must my myself
    neither never no nor not now of off often on once one only or other our ours ourselves out over own put said same
    say says see shall she should since so some still such take than that the thee their theirs them themselves then
    there these they thine thing things this those thou though through thus thy till to too two under until up upon us
    very was way we well went were what whatever when where whether which while who whom whose why will with within
    without would yet you your yours yourself don't i'm i've i'll i'd he's it's isn't can't didn't doesn't won't
"""
_COMMON: Final = frozenset(_COMMON_WORDS.split())
"""Words that tell nothing about an English text; those of other languages weigh little, given enough texts."""


def words(text: str) -> list[str]:
    """The words in order, in lower case; numbers are none.

    >>> words("The Hare's re-run, in 1867")
    ['the', "hare's", 're-run', 'in']
    """
    return [found.group().casefold().replace("’", "'") for found in _WORD.finditer(text)]


def is_telling(word: str) -> bool:
    """Whether the word may say what a text is about."""
    return len(word) > 2 and word not in _COMMON


def sentences(text: str) -> list[str]:
    """The sentences in order, each on one line; a paragraph ends one, too.

    >>> sentences("Mr. Fox came. He saw\\nus! \\n\\nA heading\\n\\n'Now?' he said.")
    ['Mr. Fox came.', 'He saw us!', 'A heading', "'Now?' he said."]
    """
    found: list[str] = []
    for paragraph in _PARAGRAPH_END.split(text):
        flat = " ".join(_UNSEEN.sub(" ", paragraph).split())
        begin = 0
        for end in _SENTENCE_END.finditer(flat):
            part = flat[begin : end.start()] + (end.group(1) or "")
            goes_on = flat[end.end() : end.end() + 1].islower()
            if not goes_on and not _ABBREVIATED.search(part):
                found.append(part)
                begin = end.end()
        found.append(flat[begin:])
    return [sentence for sentence in found if sentence]


def document_counts(texts: Collection[Collection[str]]) -> Counter[str]:
    """How many of the texts have each word; a text is its words."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(set(text))
    return counts


def key_words(
    counts: Mapping[str, int], in_documents: Mapping[str, int], documents: int, most: int
) -> list[tuple[str, float]]:
    """The most telling words of a text with their weights (tf-idf), the weightiest first, at most `most`.

    `counts` says how often each word stands in it, `in_documents` in how many of the `documents` texts it stands.

    >>> key_words({"raven": 3, "door": 3, "the": 9}, {"raven": 1, "door": 4, "the": 4}, 4, 5)
    [('raven', 5.7489), ('door', 3.0)]
    """
    weights = {
        word: round(count * (math.log((1 + documents) / (1 + in_documents.get(word, 1))) + 1), 4)
        for word, count in counts.items()
        if is_telling(word)
    }
    return sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))[:most]


def summary(text: str, weights: Mapping[str, float], most: int) -> list[str]:
    """The sentences that say most of what `weights` holds to be telling, in their order, at most `most`.

    Each sentence is worth the weights of its different words by the root of its length; the words of one that is
    chosen count a quarter from then on, so that the next says something else.

    >>> text = "A raven sat on the door. It rained a little on that day. The raven said nothing more to us."
    >>> summary(text, {"raven": 2.0, "door": 1.0}, 1)
    ['A raven sat on the door.']
    """
    found = sentences(text)
    contents = [words(sentence) for sentence in found]
    least, longest = CANDIDATE_WORDS
    left = [
        place
        for place, content in enumerate(contents)
        if least <= len(content) <= longest and found[place].rstrip("\"'”’)]")[-1:] in ".!?…。！？"
    ]
    if not left:
        left = [place for place, content in enumerate(contents) if content]
    if not left:
        return []
    first = left[0]
    now = dict(weights)
    chosen: list[int] = []
    while left and len(chosen) < most:
        worth = {place: _worth(contents[place], now, is_first=place == first) for place in left}
        best = max(left, key=lambda place: (worth[place], -place))
        chosen.append(best)
        left.remove(best)
        for word in set(contents[best]) & now.keys():
            now[word] /= 4
    return [clipped(found[place]) for place in sorted(chosen)]


def _worth(content: Sequence[str], weights: Mapping[str, float], *, is_first: bool) -> float:
    total = sum(weights.get(word, 0.0) for word in dict.fromkeys(content))
    return total / math.sqrt(len(content)) * (FIRST_SENTENCE_BONUS if is_first else 1.0)


def clipped(text: str, most: int = LONGEST_SENTENCE) -> str:
    """The text, cut between two words if it is longer than `most` characters.

    >>> clipped("one two three", 10)
    'one two …'
    """
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    return f"{cut.rpartition(' ')[0] or cut} …"
