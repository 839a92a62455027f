"""Words whose sound the dictionary has wrong, or lacks."""

import pytest

from nanospeech.text.phonemes import Dictionary
from nanospeech.text.sentences import fit, prepare
from nanospeech.text.spoken import say_word
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab

PHONEMES = Tokenizer("phonemes", phoneme_vocab())


@pytest.mark.parametrize("word, phonemes", [
    ("CT", "S IY1 T IY1"),
    ("CTs", "S IY1 T IY1 Z"),
    ("AR", "EY1 AA1 R"),
    ("HTTPS", "EY1 CH T IY1 T IY1 P IY1 EH1 S"),
    ("FYI", "EH1 F W AY1 AY1"),
    ("JSON", "JH EY1 S AH0 N"),
    ("OK'd", "OW1 K EY1 D"),
    ("OK’d", "OW1 K EY1 D"),
    ("thyme", "T AY1 M"),
    ("reused", "R IY0 Y UW1 Z D"),
    ("reusable", "R IY0 Y UW1 Z AH0 B AH0 L"),
    ("webcams", "W EH1 B K AE2 M Z"),
    ("presenter's", "P R IH0 Z EH1 N T ER0 Z"),
    ("Maeve's", "M EY1 V Z"),
    ("decades", "D EH1 K EY2 D Z"),
    ("concrete", "K AA1 N K R IY2 T"),
    ("cyclone's", "S AY1 K L OW2 N Z"),
    ("Atheism", "EY1 TH IY0 IH2 Z AH0 M"),
    ("detaching", "D IH0 T AE1 CH IH0 NG"),
    ("exploited", "IH0 K S P L OY1 T IH0 D"),
    ("houses", "HH AW1 Z IH0 Z"),
    ("contracted", "K AH0 N T R AE1 K T IH0 D"),
    ("deserting", "D IH0 Z ER1 T IH0 NG"),
    ("incensed", "IH2 N S EH1 N S T"),
    ("sowed", "S OW1 D"),
    ("rewound", "R IY0 W AW1 N D"),
    ("abs", "AE1 B Z"),
    ("ABS", "EY1 B IY1 EH1 S"),
    ("sloped", "S L OW1 P T"),
    ("slopped", "S L AA1 P T"),
    ("shapers", "SH EY1 P ER0 Z"),
    ("lacing", "L EY1 S IH0 NG"),
    ("baddies", "B AE1 D IY0 Z"),
    ("wayyy", "W EY1"),
    ("analysed", "AE1 N AH0 L AY2 Z D"),
    ("emphasising", "EH1 M F AH0 S AY2 Z IH0 NG"),
    ("remodelled", "R IY0 M AA1 D AH0 L D"),
    ("labelling", "L EY1 B AH0 L IH0 NG"),
    ("behavioural", "B IH0 HH EY1 V Y ER0 AH0 L"),
    ("sombre", "S AA1 M B ER0"),
    ("relegation", "R EH2 L AH0 G EY1 SH AH0 N"),
    ("curation", "K Y UH2 R EY1 SH AH0 N"),
    ("aggregating", "AE1 G R AH0 G EY2 T IH0 NG"),
    ("spatially", "S P EY1 SH AH0 L IY0"),
    ("sustainably", "S AH0 S T EY1 N AH0 B L IY0"),
    ("horrifically", "HH AO0 R IH1 F IH0 K L IY0"),
    ("motorhome", "M OW1 T ER0 HH OW2 M"),
    ("timescales", "T AY1 M S K EY2 L Z"),
    ("scoreline", "S K AO1 R L AY2 N"),
    ("cryptography", "K R IH0 P T AA1 G R AH0 F IY0"),
    ("snowplough's", "S N OW1 P L AW2 Z"),
    ("emojis", "IH0 M OW1 JH IY0 Z"),
    ("plateaus", "P L AE0 T OW1 Z"),
    ("dont", "D OW1 N T"),
    ("Theyre", "DH EH1 R"),
    ("shes", "SH IY1 Z"),
    ("couldve", "K UH1 D AH0 V"),
    ("keychain", "K IY1 CH EY2 N"),
    ("zookeepers", "Z UW1 K IY2 P ER0 Z"),
    ("manoeuvred", "M AH0 N UW1 V ER0 D"),
    ("kanye's", "K AA1 N Y EY2 Z"),
    ("UNHCR", "Y UW1 EH1 N EY1 CH S IY1 AA1 R"),
    ("VoIP", "V OY1 P"),
    ("OpenAI", "OW1 P AH0 N EY1 AY1"),
    ("im", "AY1 M"),
    ("IM", "AY1 EH1 M"),
    ("remixes", "R IY1 M IH0 K S IH0 Z"),
    # as before
    ("stasis", "S T EY1 S AH0 S"),
    ("torus", "T AO1 R AH0 S"),
    ("OK", "OW1 K EY1"),
    ("presented", "P R IY0 Z EH1 N T IH0 D"),
    ("thy", "DH AY1"),
    ("used", "Y UW1 Z D"),
    ("grass", "G R AE1 S"),
    ("court", "K AO1 R T"),
])  # fmt: skip
def test_words_are_said_as_people_say_them(word, phonemes):
    assert " ".join(say_word(word)[0]) == phonemes


@pytest.mark.parametrize("text, phonemes", [
    ("Mardi Gras", "G R AA1"),
    ("foie gras", "F W AA1   G R AA1"),
    ("hors d'oeuvres", "AO1 R   D ER1 V Z"),
    ("comin home", "K AH1 M IH0 N   HH"),
    ("gettin'", "G EH1 T IH0 N"),
    ("Perlin noise", "P ER1 L IH0 N"),
    ("my résumé", "R EH1 Z AH0 M EY2"),
    ("their résumés", "R EH1 Z AH0 M EY2 Z"),
    ("a dry rosé", "R OW0 Z EY1"),
    ("an exposé", "EH2 K S P OW0 Z EY1"),
    ("A rose fell. They resume work.", "R OW1 Z   F EH1 L .   DH EY1   R IH0 Z UW1 M"),
])  # fmt: skip
def test_words_of_other_languages_and_initials_are_too(text, phonemes):
    fitted, lost = fit(prepare(text, PHONEMES), PHONEMES)
    assert not lost and phonemes in " ".join(PHONEMES.tokens(fitted))


def test_a_dictionary_is_what_a_dict_of_its_lines_would_be():
    lines = ["ab AE1 B", "a AH0", "a's EY1 Z", "zoo Z UW1", "abs AE1 B Z"]
    wanted = dict(line.split(" ", 1) for line in lines) | {"ab": "EY1 B IY1", "new": "N UW1"}
    found = Dictionary(lines, {"ab": "EY1 B IY1", "new": "N UW1"})
    assert dict(found) == wanted and len(found) == len(wanted)
    tried = [*wanted, "", " ", "'", "a ", "a AH0", "b", "zo", "zoos", "é", "\U0010ffff"]
    assert [found.get(w) for w in tried] == [wanted.get(w) for w in tried]
    assert [w in found for w in tried] == [w in wanted for w in tried]
