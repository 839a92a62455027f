"""German numbers beside words: ordinals and lists, kings, times of day, scores, what 1 counts."""

from __future__ import annotations

import pytest

from nanospeech.speech.streaming import whole_sentences
from nanospeech.text.german.nouns import is_feminine
from nanospeech.text.languages import find_language
from nanospeech.text.sentences import prepare, split_sentences
from nanospeech.text.tokenizer import Tokenizer

ITEMS = """
1. Wasser kochen.\\n2. Nudeln salzen. | eins. Wasser kochen. zwei. Nudeln salzen.
3. Der Vertrag endet. | drei. Der Vertrag endet.
1. zwiebeln hacken\\n2. öl erhitzen | eins. zwiebeln hacken. zwei. öl erhitzen
Es gilt: 1. die Würde, 2. die Freiheit. | Es gilt: eins. die Würde, zwei. die Freiheit.
Sie ging. 2. Das Licht erlosch. | Sie ging. zwei. Das Licht erlosch.
3. Klasse, 2. Stock | dritte Klasse, zweiter Stock
3. Advent und 2. Weihnachtstag | dritter Advent und zweiter Weihnachtstag
1. Preis, 2. Mose 3 | erster Preis, zweiter Mose drei
2. Weltkrieg | zweiter Weltkrieg
1. Halbzeit: 2:0 | erste Halbzeit: zwei zu null
4. Kapitel | viertes Kapitel
2. überarbeitete Auflage | zweite überarbeitete Auflage
1. und 2. Klasse | erste und zweite Klasse
5. März | fünfter März
(3. Auflage) | (dritte Auflage)
"""
ORDINALS = """
Siehe Abb. 2. Danach mehr. | Siehe Abbildung zwei. Danach mehr.
Lies Kapitel 7. Dort steht es. | Lies Kapitel sieben. Dort steht es.
Er fuhr am 23. Danach war Ruhe. | Er fuhr am dreiundzwanzigsten. Danach war Ruhe.
Sie schrieb eine 3. Der Lehrer nickte. | Sie schrieb eine drei. Der Lehrer nickte.
Morgen ist der 9. | Morgen ist der neunte.
Er fuhr mit der 4. Sie ging. | Er fuhr mit der vier. Sie ging.
Er nahm die 4. Sie fuhr los. | Er nahm die vier. Sie fuhr los.
Er kommt am 12. Peter auch. | Er kommt am zwölften Peter auch.
Wir wohnen Am Markt 3, 2. Etage. | Wir wohnen Am Markt drei, zweite Etage.
Am 5. und 6. Juni ist frei. | Am fünften und sechsten Juni ist frei.
Am 1., 2. und 3. Tag lag Schnee. | Am ersten, zweiten und dritten Tag lag Schnee.
Vom 5.-7. Kapitel an | Vom fünften bis siebten Kapitel an
Am 5./6. Mai ist Markt. | Am fünften und sechsten Mai ist Markt.
Bachs 3. Versuch | Bachs dritter Versuch
Mein 2. Auto war alt. | Mein zweites Auto war alt.
In 2. Lesung, auf 3. Platz | In zweiter Lesung, auf drittem Platz
Er wurde 4. beim Rennen. | Er wurde vierter beim Rennen.
Der 1. FC Köln gewann. | Der erste FC Köln gewann.
Wir waren 8. Teil des Plans war das nicht. | Wir waren acht. Teil des Plans war das nicht.
Er ist 30. Das Leben geht weiter. | Er ist dreißig. Das Leben geht weiter.
Wir sind zu 5. Peter fehlt. | Wir sind zu fünf. Peter fehlt.
Er trägt die Nummer 10. Messi auch. | Er trägt die Nummer zehn. Messi auch.
Im 19. Jahrhundert | Im neunzehnten Jahrhundert
Jeder 5. Deutsche | Jeder fünfte Deutsche
"""
KINGS = """
Queen Victoria II. sprach. | Queen Victoria die Zweite sprach.
Unter Kaiser Otto III. brannte es. | Unter Kaiser Otto dem Dritten brannte es.
Mit Katharina II. begann es. | Mit Katharina der Zweiten begann es.
Für Papst Pius XII. galt das. | Für Papst Pius den Zwölften galt das.
Das Reich Karls V. zerfiel. | Das Reich Karls des Fünften zerfiel.
Zar Peter I. und Karl XII. kämpften. | Zar Peter der Erste und Karl der Zwölfte kämpften.
Das war Heinrich VIII. Er hatte sechs Frauen. | Das war Heinrich der Achte. Er hatte sechs Frauen.
Weltkrieg II, Rambo III und Hartz IV | Weltkrieg zwei, Rambo drei und Hartz vier
Der II. Weltkrieg, im III. Kapitel | Der zweite Weltkrieg, im dritten Kapitel
II. Die Reise | zwei. Die Reise
Michael V., 30, und Anna C. kamen. | Michael V., dreißig, und Anna C. kamen.
Größe XL, Malcolm X, die IV-Stelle | Größe XL, Malcolm X, die IV-Stelle
"""
SCORES = """
Kiel gewann 31:28. | Kiel gewann einunddreißig zu achtundzwanzig.
Zur Halbzeit stand es 15:14. | Zur Halbzeit stand es fünfzehn zu vierzehn.
Sie verlor 19:21, 18:21. | Sie verlor neunzehn zu einundzwanzig, achtzehn zu einundzwanzig.
Der erste Satz endete mit 25:20. | Der erste Satz endete mit fünfundzwanzig zu zwanzig.
Der Plan hat den Maßstab 1:50.000. | Der Plan hat den Maßstab eins zu fünfzigtausend.
Sie lief in 4:01:30 ins Ziel. | Sie lief in vier Stunden einer Minute und dreißig Sekunden ins Ziel.
Es dauerte 3:25:10 Stunden. | Es dauerte drei Stunden fünfundzwanzig Minuten und zehn Sekunden.
Das Lied hat 3:05 Minuten. | Das Lied hat drei Minuten und fünf Sekunden.
Er lief 1:45,3 Minuten. | Er lief eine Minute und fünfundvierzig Komma drei Sekunden.
Das Spiel gegen Ulm endete 22:20. | Das Spiel gegen Ulm endete zweiundzwanzig zu zwanzig.
Die Schicht endet 14:30. | Die Schicht endet vierzehn Uhr dreißig.
Er kommt um 8.15. | Er kommt um acht Uhr fünfzehn.
Es stieg um 2.5 Prozent. | Es stieg um zwei Komma fünf Prozent.
Wir haben 21:19 gewonnen. | Wir haben einundzwanzig zu neunzehn gewonnen.
Um 20:15 gewann sie. | Um zwanzig Uhr fünfzehn gewann sie.
Nach dem Sieg fährt der Bus um 22:10. | Nach dem Sieg fährt der Bus um zweiundzwanzig Uhr zehn.
Die Führung beginnt 14:30. | Die Führung beginnt vierzehn Uhr dreißig.
Abfahrt 10:05, Ankunft 12:47 | Abfahrt zehn Uhr fünf, Ankunft zwölf Uhr siebenundvierzig
Der Stand um 18:00: 12 Tote. | Der Stand um achtzehn Uhr: zwölf Tote.
7:15-8:45 Uhr | sieben Uhr fünfzehn bis acht Uhr fünfundvierzig
von 8 bis 12.30 Uhr | von acht bis zwölf Uhr dreißig
von 9-17 Uhr | von neun bis siebzehn Uhr
Um 9.30 geht es los. | Um neun Uhr dreißig geht es los.
"""
RANGES = """
5-6 Mio. Menschen | fünf bis sechs Millionen Menschen
1914-18 war Krieg. | neunzehnhundertvierzehn bis achtzehn war Krieg.
Das Schuljahr 2019/20 | Das Schuljahr zweitausendneunzehn zwanzig
1820-1895 | achtzehnhundertzwanzig bis achtzehnhundertfünfundneunzig
12 - 5 = 7, 20 : 4 = 5 | zwölf minus fünf gleich sieben, zwanzig geteilt durch vier gleich fünf
12 - 15 Leute | zwölf bis fünfzehn Leute
rund um die Uhr, 24/7 | rund um die Uhr, vierundzwanzig sieben
2/7 davon | zwei Siebtel davon
die 70er, in den 50ern, die 89er | die siebziger, in den fünfzigern, die neunundachtziger
ein 10er-Pack, der 1848er | ein zehner-Pack, der achtzehnhundertachtundvierziger
"""
ONE = """
1 Dose Mais, 1 Gurke, 1 Bund Dill | eine Dose Mais, eine Gurke, ein Bund Dill
1 Msp. Zimt, 1 Handvoll Reis | eine Messerspitze Zimt, eine Handvoll Reis
1 große Möhre, 1 kleiner Kohl | eine große Möhre, ein kleiner Kohl
1 EL Öl, ½ TL Salz, 2 EL Mehl | ein Esslöffel Öl, ein halber Teelöffel Salz, zwei Esslöffel Mehl
Gleis 1 Abfahrt, Formel 1 Rennen | Gleis eins Abfahrt, Formel eins Rennen
1 Käse, 1 Auge, 1 Junge, 1 Kunde | ein Käse, ein Auge, ein Junge, ein Kunde
Team 1 hatte Glück. | Team eins hatte Glück.
"""
TABLES = {"items": ITEMS, "ordinals": ORDINALS, "kings": KINGS, "scores": SCORES}
TABLES |= {"ranges": RANGES, "one": ONE}


@pytest.fixture(scope="module")
def german() -> Tokenizer:
    pytest.importorskip("num2words", reason="it is of the extra languages")
    return Tokenizer("chars", [*" abcdefghijklmnopqrstuvwxyzäöüß.,?!"]).with_language("de")


@pytest.mark.parametrize("name", TABLES)
def test_numbers_are_read_as_the_words_around_them_ask(german, name):
    cases = [line.split(" | ") for line in TABLES[name].strip().splitlines()]
    found = [(t, prepare(t.replace("\\n", "\n"), german)) for t, _ in cases]
    assert found == [tuple(case) for case in cases]
    again = [said for _, said in found]
    assert [prepare(said, german) for said in again] == again


@pytest.mark.parametrize(
    "text",
    [
        "Er fuhr am 23.| Danach war Ruhe.",
        "Er fuhr am 23. Mai.| Danach war Ruhe.",
        "Er kam um 5.| Tag und Nacht arbeitet er.",
        "Sie landete auf 5. Rang, er auf 7. Platz.| Gut.",
        "Er wohnt in Nr. 9.| Beide sind froh.",
        "Wir wohnen hier, 3. Stock.| Schön ist es.",
        "1. Mehl sieben.| 2. Eier zugeben.",
        "Unter Friedrich II. war Krieg.| Das ist wahr.",
        "Das war Ludwig XIV.| Er war König.",
        "Der III. Teil fehlt.| Schade.",
        "Am 24.12. ist frei.| Gut.",
        "Das dauert 2 Std. 15 Min. und mehr.| Gut.",
        "Am 5.-7. Versuch lag es.| Gut.",
        "Es sind 3 Mio. Daten.| Gut.",
        "Es sind 3 Mio. Euro.| Das ist viel.",
        "Er kommt am Mo. Abend.| Sie am Fr. um acht.",
    ],
)
def test_sentences_end_behind_numbers_only_where_they_do(text):
    wanted = [s.strip() for s in text.split("|")]
    language = find_language("de")
    whole = text.replace("|", "")
    assert [s.strip() for s in split_sentences(whole, language)] == wanted
    assert [s.strip() for s in whole_sentences(iter(whole), language)] == wanted


def test_the_gender_of_nouns_is_told_by_their_endings_and_their_exceptions():
    feminine = """Zwiebel Prise Dose Banane Zeitung Freiheit Möglichkeit Mannschaft Universität
    Nation Bäckerei Lehrerin Batterie Tastatur Haselnuss Kleinstadt Uhr Gemeinde Phase Waffe Legende
    Sekunde Urkunde Lunge Aufnahme Spende Pizza Idee"""
    others = """Auge Ende Wochenende Name Vorname Käse Junge Kunde Kollege Gebäude Gemüse Ei Sprung
    Termin Hase Zeuge Tee Finale Buchstabe Löwe Psychologe Apfel Mann Haus Stadion Kaffee Brei"""
    assert [w for w in feminine.split() if not is_feminine(w)] == []
    assert [w for w in others.split() if is_feminine(w)] == []
