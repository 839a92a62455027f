"""German figures that are no amounts, signs between figures, and abbreviations beside them."""

from __future__ import annotations

import pytest

from nanospeech.text.languages import find_language
from nanospeech.text.sentences import prepare, split_sentences
from nanospeech.text.tokenizer import Tokenizer

CALLS = """
0172-9876543 | null eins sieben zwei neun acht sieben sechs fünf vier drei
(040) 321-654 | null vier null drei zwei eins sechs fünf vier
089/1234 | null acht neun eins zwei drei vier
0800 123 456 | null acht null null eins zwei drei vier fünf sechs
Notruf 112 | Notruf eins eins zwei
20095 Hamburg | zwei null null neun fünf Hamburg
PLZ 01067 | PLZ null eins null sechs sieben
Seeweg 3, 23999 Poel | Seeweg drei, zwei drei neun neun neun Poel
Er sah 12345 Frauen. | Er sah zwölftausenddreihundertfünfundvierzig Frauen.
20-30 Bücher, 5-10 km | zwanzig bis dreißig Bücher, fünf bis zehn Kilometer
Konto 123 456 | Konto eins zwei drei vier fünf sechs
"""
PARTED = """
25 000 Leute | fünfundzwanzigtausend Leute
1 250,50 € | eintausendzweihundertfünfzig Euro fünfzig
3 000 000 km | drei Millionen Kilometer
das 10 000-Meter-Rennen | das zehntausend-Meter-Rennen
2 300-Euro-Geräte | zwei dreihundert-Euro-Geräte
Fr. 35.-, CHF 1'200.50 | fünfunddreißig Franken, eintausendzweihundert Franken fünfzig
650,- im Monat | sechshundertfünfzig im Monat
3.50 €, 4.2 km | drei Euro fünfzig, vier Komma zwei Kilometer
1.234 Euro | eintausendzweihundertvierunddreißig Euro
"""
PRODUCTS = """
1024x768 Pixel | eintausendvierundzwanzig mal siebenhundertachtundsechzig Pixel
6 x 1,5 l | sechs mal eins Komma fünf Liter
20 cm x 30 cm | zwanzig Zentimeter mal dreißig Zentimeter
2x täglich, 1x im Monat, 4-mal | zweimal täglich, einmal im Monat, viermal
0x1F, der X5, Xaver | null x eins F, der X fünf, Xaver
7,2 l/100 km | sieben Komma zwei Liter pro einhundert Kilometer
4 €/m², 50 Euro/Nacht | vier Euro pro Quadratmeter, fünfzig Euro pro Nacht
9 l/min, 50 Mbit/s | neun Liter pro Minute, fünfzig Megabit pro Sekunde
80 km/h | achtzig Kilometer pro Stunde
Männer/Frauen, 5 Euro/6 Dollar | Männer Frauen, fünf Euro sechs Dollar
3/4 Liter | drei Viertel Liter
"""
NAMES = """
Python 3.12, Version 1.2.10 | Python drei Punkt zwölf, Version eins Punkt zwei Punkt zehn
192.168.0.1 | einhundertzweiundneunzig Punkt einhundertachtundsechzig Punkt null Punkt eins
am 1.2.2010 | am ersten Februar zweitausendzehn
brief_neu.docx, bahn.de | brief neu Punkt docx, bahn Punkt de
Ende gut.Alles gut | Ende gut.Alles gut
#Freiheit, #3, C# | Hashtag Freiheit, Nummer drei, C Sharp
10⁶ und 2¹² von 3 m² | zehn hoch sechs und zwei hoch zwölf von drei Quadratmeter
a² + b³ ± √9 ≈ 2^4 | a hoch zwei plus b hoch drei plus minus Wurzel aus neun ungefähr zwei hoch vier
5 m², 7 cm³ | fünf Quadratmeter, sieben Kubikzentimeter
"""
DAYS = """
Am Fr. kam Fr. Wolf. | Am Freitag kam Frau Wolf.
Am Do geht es, am So. Wind. | Am Donnerstag geht es, am Sonntag Wind.
Am Di. Danach ruhen wir. | Am Dienstag. Danach ruhen wir.
Fr. von Stein und Fr. Dr. Au | Frau von Stein und Frau Doktor Au
Mi. geschlossen, Sa 9-13 Uhr | Mittwoch geschlossen, Samstag neun bis dreizehn Uhr
Mo, Mi und Fr | Montag, Mittwoch und Freitag
Do, 14.3., ab 8 Uhr | Donnerstag, vierzehnter März, ab acht Uhr
So 10 bis 15 Leute | So zehn bis fünfzehn Leute
Mo mag ihn. So ist das. | Mo mag ihn. So ist das.
"""
SHORT = """
3 Std. 20 Min. 5 Sek. | drei Stunden zwanzig Minuten fünf Sekunden.
Es dauert 2 Std. Dann ruhen wir. | Es dauert zwei Stunden. Dann ruhen wir.
Gr. 42, ab Hbf. Köln | Größe zweiundvierzig, ab Hauptbahnhof Köln
2 Std. Fahrt | zwei Stunden Fahrt
inkl. MwSt. und Versand | inklusive Mehrwertsteuer und Versand
Fa. Kern & Co. KG, Abt. Einkauf | Firma Kern und Co KG, Abteilung Einkauf
z. Hd. Fr. Ott | zu Händen Frau Ott
lt. Plan bspw. heute, ggfs. morgen | laut Plan beispielsweise heute, gegebenenfalls morgen
Dr. med. Roth, S. 4 ff. | Doktor med Roth, Seite vier und folgende.
für 6 Pers., für 1 Pers. | für sechs Personen, für eine Person.
des Hl. Geistes, der Hl. Geist | des Heiligen Geistes, der Heilige Geist
4 % p. a., a. a. O. | vier Prozent pro Jahr, am angegebenen Ort.
Im Jan. schneit es. | Im Januar schneit es.
Das ist Jan. | Das ist Jan.
4000 mAh | viertausend Milliamperestunden
"""
TABLES = {"calls": CALLS, "parted": PARTED, "products": PRODUCTS, "names": NAMES}
TABLES |= {"days": DAYS, "short": SHORT}


@pytest.fixture(scope="module")
def german() -> Tokenizer:
    pytest.importorskip("num2words", reason="it is of the extra languages")
    return Tokenizer("chars", [*" abcdefghijklmnopqrstuvwxyzäöüß.,?!"]).with_language("de")


@pytest.mark.parametrize("name", TABLES)
def test_figures_signs_and_abbreviations_are_read_as_they_are_meant(german, name):
    cases = [line.split(" | ") for line in TABLES[name].strip().splitlines()]
    assert [(text, prepare(text, german)) for text, _ in cases] == [tuple(c) for c in cases]


@pytest.mark.parametrize(
    "text",
    [
        "Er kommt am Mo. zu uns.",
        "Geöffnet Sa. 9-14 Uhr, So. geschlossen.",
        "Es dauert 45 Min. lang.",
        "Der Hl. Geist kam.",
        "Er wohnt in der Gartenstr. 5 und arbeitet hier.",
        "Vgl. S. 12 ff. und Abb. 3.",
        "Die Fa. Müller & Co. KG, Abt. Einkauf, zahlt 3 % p. a. dafür.",
        "Im Jan. und im Feb. war es kalt.",
        "Er hat 3 Mrd. Dollar und 2 Std. Zeit.",
        "Der Ort d. Handlung u. das Urt. v. 3. Mai galten f. Berlin.",
        "Das gilt i. V. m. § 4 StGB, i. H. v. 5 €, ggf. tgl. Montags.",
    ],
)
def test_no_sentence_ends_within_one(text):
    assert split_sentences(text, find_language("de")) == [text]
