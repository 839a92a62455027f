"""German nouns: the gender that "1" and an ordinal take, and words that begin a sentence."""

from __future__ import annotations

import re

from .number_words import words

# what an ordinal stands before without an article: "5. Klasse", "3. Stock"
COUNTED = dict.fromkeys(
    words(
        """Klasse Auflage Liga Bundesliga Kreisliga Landesliga Regionalliga Oberliga Etage Halbzeit
        Runde Woche Ausgabe Stufe Staffel Folge Lesung Mannschaft Sinfonie Symphonie Spielminute
        Minute Fassung Instanz Etappe Schwangerschaftswoche Strophe Szene Legislaturperiode
        Wahlperiode Jahreshälfte Kammer Division Armee Vorsitzende Generation Kategorie Impfung"""
    ),
    "f",
)
COUNTED |= dict.fromkeys(
    words(
        """Platz Stock Weltkrieg Bezirk Rang Spieltag Akt Teil Tag Monat Jahrgang Geburtstag
        Hochzeitstag Todestag Jahrestag Advent Weihnachtstag Weihnachtsfeiertag Feiertag Gang
        Versuch Abschnitt Schritt Durchgang Kreuzzug Senat Zivilsenat Strafsenat Wahlgang
        Tabellenplatz Vorsitzender Preis Mose Korinther Timotheus Thessalonicher
        Makkabäer Bildungsweg Aufzug Breitengrad Sonntag FC FSV FCK SC Januar
        Februar März April Mai Juni Juli August September Oktober November Dezember Jan Feb Apr Aug
        Sept Sep Okt Nov Dez"""
    ),
    "m",
)
COUNTED |= dict.fromkeys(
    words(
        """Jahrhundert Jahrtausend Jahrzehnt Kapitel Obergeschoss Untergeschoss Stockwerk Geschoss
        Quartal Halbjahr Semester Schuljahr Lebensjahr Lehrjahr Ausbildungsjahr Drittel Viertel Mal
        Gebot Bataillon Regiment Korps Trimester Jh Jhd Jahrh OG UG"""
    ),
    "n",
)
# whose ordinals end in -es after "ein"
NEUTER = words(
    """Auto Kind Haus Buch Spiel Tor Album Konzert Mädchen Leben Rennen Training Treffen Baby
    Projekt Bild Beispiel Mitglied Opfer Ziel Zimmer Fenster Paar Gleis Auge Ohr Bein Rad Werk"""
)
# what a number stands behind: "Nr. 1", "Kapitel 3"
NUMBERING = words(
    """Nummer Nr Kapitel Kap Seite S Band Bd Abbildung Abb Tabelle Tab Absatz Abs Abschnitt Abschn
    Anmerkung Anm Artikel Art Zeile Z Ziffer Paragraf Straße Str Hausnummer Gleis Zimmer Raum
    Linie Version Punkt Bild Gruppe Team Teil Platz Phase Formel Nrn Runde Halle Tor Stufe Aufgabe
    Frage Paragrafen Übung Beispiel Zone Station Satz Aktenzeichen Az"""
)
# with a capital these begin a sentence, as no noun is written so
STARTERS = words(
    """Der Die Das Den Dem Des Er Sie Es Ich Du Wir Ihr Man Ein Eine Einen Einer Einem Danach Dann
    Da Dort Hier Heute Gestern Nun Jetzt Aber Und Oder Doch Denn Dennoch Deshalb Daher Darum
    Deswegen Trotzdem Also Auch Wenn Weil Als Ob Obwohl Nachdem Bevor Während Seit Seitdem Bis Was
    Wer Wie Wo Warum Wann Welche Welcher Mein Meine Dein Deine Sein Seine Ihre Unser Unsere Dieser
    Diese Dieses Diesen Jener Jede Jeder Jedes Alle Alles Viele Einige Manche Kein Keine Keiner Nur
    Nicht Noch Schon Sonst Später Zuerst Zuletzt Zunächst Schließlich Außerdem Leider Vielleicht In
    Im Am An Auf Aus Bei Beim Mit Nach Von Vom Vor Zu Zum Zur Für Durch Um Über Unter Zwischen Gegen
    Ohne Bitte Ja Nein So Damals Bald Dabei Dafür Dagegen Damit Daraus Darauf Davon Dazu Ebenso
    Immer Kurz Mehr Niemand Jemand Nichts Selbst Sogar Soll Ist Sind War Hat Haben Kann Wird"""
)
# articles and pronouns, before which no ordinal stands at the start of an item: "1. das Mehl"
ARTICLES = words("der die das den dem ein eine einen ich du er sie es wir ihr man")
FIRST_WORD = re.compile(r"[\s\"'(]*([^\W\d]+)")

MASCULINE = re.compile(
    r"(?i:liter|(?<!o)meter|kilometer|löffel|tag|\Amonat|becher|apfel|\Aeuro|dollar|franken|cent"
    r"|punkt|zentner|würfel|kopf|topf|block|satz|schritt|\Ateil|kreis|platz|kuchen|teller|mann"
    r"|mensch|schuss|spritzer|schluck|sack|kasten|eimer|hektar|bund|termin|gast|raum|abend|versuch"
    r"|beutel|stängel|zweig|spieler|schüler|lehrer|artikel|zoll)\Z"
)
FEMININE = words(
    """Stunde Minute Sekunde Urkunde Mark Million Milliarde Person Frau Tochter Schwester Mutter
    Kartoffel Gabel Nadel Insel Regel Wurzel Schachtel Tafel Formel Vokabel Kugel Zwiebel Schüssel
    Feder Mauer Feier Steuer Nummer Kammer Leber Ziffer Oper Ader Faser Schulter Hand Wand Stadt
    Nacht Wurst Nuss Bank Axt Maus Gans Kuh Brust Haut Frucht Faust Braut Kraft Macht Schlacht Fahrt
    Tat Zeit Arbeit Antwort Welt Zahl Wahl Uhr Tür Spur Dosis Basis Mail E-Mail App Couch Bar Party
    Pizza Paprika Oma Firma Kamera Villa Cola Limo Gurke Tasse Gemeinde Geschichte Gebärde Geige
    Geste Gerste Geisel Loge Gebühr Gefahr Geburt Gestalt Prise Messerspitze Karaffe Idee Armee
    Allee Fee Burg Form Bahn Frist Art Schicht Stimme Disco SMS WG Semmel Handvoll Zucchini"""
)
FEMININE_END = re.compile(
    r"(?:ung|heit|keit|schaft|tät|[stx]ion|enz|[rtl]ei|erin|ie|atur|[kr]tur"
    r"|nuss|stadt|wurst|nacht|zeit|zahl|tür|fahrt|frau|arbeit|kraft|antwort|gebühr|e)\Z"
)
NOT_FEMININE = words(
    """Auge Ende Erbe Affe Hase Rabe Bote Ochse Zeuge Wille Riese Hirte Knabe Laie Lotse Neffe Pate
    Same Schütze Sklave Geselle Gatte Glaube Friede Funke Haufe Falke Drache Bursche Bube Bulle Rüde
    Welpe Hüne Insasse Nachkomme Vorfahre Matrose Stratege Kunde Stammkunde Neukunde Privatkunde
    Geschäftskunde Großkunde Brite Schwede Däne Pole Russe Grieche Türke Finne Franzose Ire Schotte
    Chinese Portugiese Tscheche Slowake Slowene Kroate Serbe Bulgare Rumäne Asiate Jude Kurde See
    Stausee Badesee Kaffee Schnee Klee Klischee Püree Gelee Frikassee Genie Selfie Smoothie Brownie
    Hippie Zombie Hoodie Cookie Baguette Omelette Regime Genre Image Ensemble Service Smartphone
    iPhone Update Upgrade Shake Tape File Store Brei Blei Ei Abitur Hering Sprung Schwung Dung
    Osterhase Postbote Hühnerauge Lenz Schrei Horizont Theologe Prestige Karate Single Kamerad
    Spion Skorpion Stadion"""
)
NOT_FEMININE_END = re.compile(
    r"(?i:name|käse|junge|kollege|gedanke|buchstabe|finale|interesse|löwe|experte|tee|gebäude|gemüse"
    r"|[sn]ende|prung|\w\wloge|goge|genosse|gefährte|stadion|\AGe[^\W\d]+e)\Z"
)


def first_word(following: str) -> str:
    """The word that a text begins with; "" where it does with none."""
    found = FIRST_WORD.match(following)
    return found[1] if found else ""


def gender(noun: str) -> str | None:
    """ "f", "m" or "n" of a noun that ordinals often stand before."""
    return "n" if noun in NEUTER else COUNTED.get(noun)


def starts_sentence(following: str) -> bool:
    """Whether a text is at its end, or begins with a new line or a word that begins sentences.

    A word at which the text breaks off may go on, as "Ja" does in "Jahr".
    """
    if not following.strip() or following[:1] == "\n":
        return True
    return first_word(following) in STARTERS and not breaks_off(following)


def breaks_off(following: str) -> bool:
    """Whether a text ends within or behind its first word."""
    found = FIRST_WORD.match(following)
    return bool(found) and found.end() == len(following)


def is_masculine(noun: str) -> bool:
    """Whether a noun that amounts are counted in is masculine."""
    return bool(MASCULINE.search(noun))


def is_feminine(noun: str) -> bool:
    """Whether a noun is feminine, by its last letters where no list has it."""
    if noun in FEMININE:
        return True
    if noun in NOT_FEMININE or NOT_FEMININE_END.search(noun):
        return False
    return bool(FEMININE_END.search(noun))
