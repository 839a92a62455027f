"""German figures that are no amounts (telephone numbers, postcodes, versions, files), and those
that are written apart from their amounts: 10 000, 3 x 4 m, 5 €/kg, Fr. 50.-"""

from __future__ import annotations

import re

from .number_words import cardinal, digits, number, words
from .ordinals import before, behind
from .quantities import MANY, SIGN, UNIT, UNITS

PART = {"Std": "Stunde", "Std.": "Stunde", "d": "Tag", "s²": "Sekunde hoch zwei"}
PART |= {"Min": "Minute", "Min.": "Minute", "Mon.": "Monat", "Pers.": "Person", "Sek.": "Sekunde"}
PART |= {"dl": "Deziliter", "cl": "Zentiliter", "kWp": "Kilowatt Peak"}
NAMED = """Tag Woche Monat Jahr Stunde Minute Sekunde Nacht Person Kopf Stück Liter Kilo Kilogramm
Quartal Kilometer Meter Quadratmeter Einwohner Schüler Gast Semester Tonne Spieler Haushalt Kind"""
PER = "|".join(
    sorted(map(re.escape, UNITS.keys() | PART.keys() | words(NAMED)), key=len, reverse=True)
)
TIMES_BEHIND = (
    r"(?= (?:täglich|tä?gl\.|wöchentlich|monatlich|jährlich|am Tag|pro|im Jahr|die Woche|in der)"
    r"(?!\w))"
)
FILES = r"""pdf docx? xlsx? pptx? odt txt rtf csv json xml ya?ml html? css js py md zip tar\.gz tar
    gz exe conf toml sh bat ts tsx rs go java cpp ipynb onnx gguf safetensors sql bak tmp env io dev
    jpe?g png gif svg mp3 mp4 wav mov avi epub log ini cfg de com org net at ch eu info"""
FILE = "|".join(FILES.split())
CITIES = words(
    """Berlin Hamburg München Köln Frankfurt Stuttgart Düsseldorf Leipzig Dortmund Bremen Dresden
    Hannover Nürnberg Duisburg Bochum Wuppertal Bielefeld Bonn Münster Mannheim Karlsruhe Augsburg
    Wiesbaden Mönchengladbach Gelsenkirchen Aachen Braunschweig Kiel Chemnitz Magdeburg Freiburg
    Krefeld Mainz Lübeck Erfurt Oberhausen Rostock Kassel Potsdam Saarbrücken Hamm Ludwigshafen
    Oldenburg Osnabrück Leverkusen Heidelberg Darmstadt Solingen Regensburg Herne Paderborn Neuss
    Ingolstadt Offenbach Fürth Ulm Heilbronn Pforzheim Würzburg Wolfsburg Göttingen Bottrop
    Reutlingen Koblenz Bremerhaven Erlangen Jena Remscheid Trier Salzgitter Siegen Hildesheim
    Cottbus Gera Kaiserslautern Konstanz Passau Bamberg Bayreuth Weimar Schwerin Flensburg Tübingen
    Marburg Gießen Fulda Landshut Rosenheim Esslingen Ludwigsburg Lüneburg Celle Stralsund"""
)
CITY = "|".join(sorted(CITIES))
ADDRESS_BEFORE = re.compile(
    r"(?:[Ss]traße|[Ss]tr\.|[a-zß](?:weg|platz|allee|gasse|ring|damm|ufer)|[WPRD](?:eg|latz|ing|amm)"
    r"|Allee|Ufer) \d{1,3} ?[a-z]?, \Z"
)
# what has digits behind it that are said one by one
NUMBERED = (
    r"(?:Tel\.?:?|Telefon:|Telefonnummer:?|Fax:?|Mobil:|Handynummer:?|Rufnummer:?|Durchwahl:?|Notruf"
    r"|Kundennummer:?|Konto:?|Kontonummer:?|BLZ:?|ISBN:?)"
)
VERSIONED = (
    r"(?:Version|Python|Java|iOS|iPadOS|Android|macOS|Windows|Linux|Kernel|Ubuntu|Debian|Fedora|Release"
    r"|Update|Firmware|PHP|Node|Build|Abschnitt|Kapitel|Ziffer|Bluetooth|USB|HTML|Firefox|Chrome|GPT"
    r"|Web|Industrie|Stand|[vV])"
)


def pointed(m: re.Match) -> str:
    """3.11, 2.0.1 with "Punkt"; before a unit a point is a comma, and of thousands it is none."""
    text = m[0]
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+", text):
        return text
    if text.count(".") == 1 and AMOUNT_BEHIND.match(behind(m)):
        return text.replace(".", ",")
    return version(text)


def version(text: str) -> str:
    return " Punkt ".join(map(number, text.split(".")))


def spelled(m: re.Match) -> str:
    """The digits of a match one by one."""
    return digits(m[0])


def copied(m: re.Match, named: re.Pattern) -> str:
    """Der Code 4711, Kundennummer 123456: digit by digit, but "der Code 2019 geändert"."""
    found = named.search(before(m))
    dated = found and found[0] in ("Code", "Schlüssel") and YEAR.fullmatch(m[1])
    return f" {digits(m[1])}" if found and not dated else m[0]


def postcode(m: re.Match) -> str:
    """80331 München, and after a street and its number before any place."""
    known = (m[2] in CITIES and len(m[1]) == 5) or ADDRESS_BEFORE.search(before(m))
    return f"{digits(m[1])} {m[2]}" if known else m[0]


def per(m: re.Match) -> str:
    """5 €/kg: its unit is left to the rules of amounts."""
    unit = m[3]
    if (m[2] or "").strip() not in ("", "10", "100", "1000"):  # 250 kcal/1046 kJ
        return m[0].replace("/", ", ")
    named = PART.get(unit) or (UNITS[unit][0] if unit in UNITS else unit)
    return f"{m[1]} pro {f'{m[2]}{unit}' if m[2] else named}"


def francs(m: re.Match) -> str:
    """Fr. 50.-, CHF 12.50 as others write them."""
    cents = m[2] if m[2] and m[2].isdigit() else ""
    return f"CHF {m[1]}{',' + cents if cents else ''}"


def arithmetic(m: re.Match) -> str:
    """10 - 4, 12 : 3 before "=", with the names of the signs."""
    text = re.sub(r" ?- ?", " minus ", m[0])
    text = re.sub(r" ?[:/] ?", " geteilt durch ", text)
    return re.sub(r" ?[x×·*] ?", " mal ", text)


def often(m: re.Match) -> str:
    """3x täglich."""
    n = int(m[1])
    return "einmal" if n == 1 else f"{cardinal(n)}mal"


NUMBERS_OF = "Zeilen|Zeichen|Wörter|Stellen|Euro|€|Mal|Jahre|Dateien"  # no code before these
# what is counted, and no place behind a postcode: "in 12345 Fällen", "aus 27631 Teilnehmern"
COUNTED = """Fällen Personen Menschen Frauen Jahren Tagen Stunden Minuten Haushalten Seiten Zeilen
Exemplaren Zeichen Dateien Stimmen Orten Euro Dollar Meter Kilometer"""
COUNTED_ENDS = """nehmern wohnern suchern ürgern ülern ändern äusern örtern ildern etern indern
itgliedern betrieben wertungen nungen stellungen"""
PLURALS = rf"(?:{'|'.join(COUNTED.split())}|[^\W\d]+(?:{'|'.join(COUNTED_ENDS.split())}))\b"
AMOUNT_BEHIND = re.compile(rf" ?(?:{MANY}|(?:{SIGN}|{UNIT}|Prozent|Grad|Meter|Liter)(?!\w))")
YEAR = re.compile(r"1[5-9]\d\d|20\d\d")
SECRET = re.compile(
    r"(?:\b(?:PIN|TAN|PUK)|[Cc]ode|[Pp]asswort|[Kk]ennwort|[Ss]chlüssel|[Gg]eheimzahl)"
    r":?(?: lautet| ist)?:?\Z"
)
OF_CUSTOMER = re.compile(r"[^\W\d](?:[Nn]ummer|-?[Nn]r\.|-ID):?\Z")
RULES = [
    # codes and numbers of customers, tax and goods
    (rf" (\d{{4,12}})(?![\w-]|[.,:]\d| (?:{NUMBERS_OF}))", lambda m: copied(m, SECRET)),
    (
        r" (\d{2,3}(?: \d{3})+|\d+(?:/\d+)+|\d{6,20})(?![\w-]|[.,:]\d)",
        lambda m: copied(m, OF_CUSTOMER),
    ),
    (r"(?<=\d[a-z])-(?=[a-z]\b)", lambda m: " bis "),  # Gleis 3a-c
    (r"\b(Fax:?|Durchwahl:?|DW:?) -(\d{1,5})\b", lambda m: f"{m[1]} {digits(m[2])}"),
    (
        r"((?:\b(?:Sitz|Sitzplatz|Platz|Zimmer|Raum|Klasse|Wohnung|Gate|Haus|Hausnummer|Gleis)"
        r"|(?:[Ss]traße|[Ss]tr\.|weg|allee|platz|gasse)) )(\d{1,4})([A-Ka-g])\b(?!\d)",
        lambda m: f"{m[1]}{number(m[2])} {m[3]}",
    ),
    (r"\b([A-Z])([A-Z])(\d{8,11})\b", lambda m: f"{m[1]} {m[2]} {digits(m[3])}"),
    (
        r"\b(Seite|Teil|Folge|Blatt|Schritt|Kapitel|Bild|Tag|Etappe|Runde) "
        r"(\d{1,4})/(\d{1,4})\b(?![/.,]\d)",
        lambda m: f"{m[1]} {number(m[2])} von {number(m[3])}",
    ),
    # what is named by its digits
    (
        rf"\b({NUMBERED}) (\d[\d /-]*\d)(?![\w-]|[.,:]\d)",
        lambda m: f"{m[1]} {digits(m[2])}",
    ),
    (r"\b([A-Z])([A-Z])(\d\d(?: \d{2,4}){3,8})\b", lambda m: f"{m[1]} {m[2]} {digits(m[3])}"),
    # postcodes
    (r"\b(PLZ|Postleitzahl)(:?) (\d{4,5})\b", lambda m: f"{m[1]}{m[2]} {digits(m[3])}"),
    (r"\b(?:D|A|CH)-(\d{4,5}) (?=[A-ZÄÖÜ])", lambda m: f"{digits(m[1])} "),
    (
        rf"(\d{{3}}[1-9]\d|\d{{4}}[1-9]) (?:(?<=\bin \d{{5}} )|(?<=\baus \d{{5}} ))(?!{PLURALS})"
        r"(?=[A-ZÄÖÜ])",
        lambda m: f"{digits(m[1])} ",
    ),
    (r"(?<![\w.,+-])(\d{4,5}) ([A-ZÄÖÜ][^\W\d_]+)\b", postcode),
    # thousands as DIN 5008 and as Switzerland part them
    (
        r"(?<![\w.,+/:-])(?<![\d/)-] )(?:[1-9]\d{1,2}(?: \d{3})+|[1-9](?: \d{3})+(?!-))"
        r"(?! ?\d|[/:]\d|-\d|\.\d)",
        lambda m: m[0].replace(" ", "."),
    ),
    # telephone numbers
    (
        r"(?<![\w.,+/-])(?:\(0(?: ?\d{1,4}){1,3}\) ?|0\d{2,5} ?[/-] ?)\d{2,}(?:[ /-]\d+)*"
        r"(?![\w-])"
        r"|(?<![\w.,+/-])0\d+(?: \d+)+(?:-\d+)?(?![\w-]|[.,:]\d)",
        spelled,
    ),
    (
        r"(?<![\w.,'])(\d{1,3}(?:'\d{3})+)(?:\.(\d\d)(?!\d))?(?![\w'])",
        lambda m: m[1].replace("'", ".") + (f",{m[2]}" if m[2] else ""),
    ),
    # Swiss francs
    (r"\b(?:Fr\.|CHF) ?(\d[\d.]*(?:,\d\d)?)[.,](-{1,2}|\d\d(?!\d| ?Uhr))(?!\w)", francs),
    (r"(?<=\bfür )Fr\. (?=\d)|(?<=koste[nt] )Fr\. (?=\d)", lambda m: "CHF "),
    (r"(?<=\d) ?Fr\.(?! ?[\d-])(?= [a-zäöü(]|[,;)])", lambda m: " CHF"),
    (r"(?<=\d)[.,]-{1,2}(?=\s|[.,;!?)]|\Z)(?! ?(?:€|EUR|CHF|Fr|Euro))", lambda m: ""),
    # products and powers of ten
    (
        r"(?<![\w.,:/-])\d{1,9}(?:,\d{1,9})?(?: ?[-+*x×·:/] ?\d{1,9}(?:,\d{1,9})?){1,8}(?= ?=)",
        arithmetic,
    ),
    (rf"(?<!\b0)(?<=\d)( ?(?:{UNIT})?) ?[x×·*] ?(?=\d)", lambda m: f"{m[1]} mal "),
    (rf"(?<![\w.,=+])(\d{{1,3}})(?:x(?=\s|[.,;!?)]|\Z)(?! ?[-+=])| x{TIMES_BEHIND})", often),
    (r"(?<![\w.,])(\d{1,3})-?mal\b", often),
    (r"(?<![\w.,])(\d{1,9},\d{1,3})x(?!\w)", lambda m: f"{number(m[1])} mal"),
    (r"(?<=\d)( ?U)?/min\b", lambda m: " Umdrehungen pro Minute" if m[1] else " pro Minute"),
    (
        r"/(?:(?<=\d\d/)(?=\d{2,3} ?mmHg)|(?<=\bRR \d\d\d/)(?=\d)|(?<=\b50/)(?=50\b))",
        lambda m: " zu ",
    ),
    (rf"(?<=\d)( ?(?:[^\W\d_]{{1,12}}\.?|[€$£°]C?))/(\d+ )?({PER})(?![\w/²³])", per),
    (r"\bkm/h\b", lambda m: "Kilometer pro Stunde"),
    (r"\b24 ?/ ?7\b", lambda m: "vierundzwanzig sieben"),
    # versions, files, signs that belong to a word
    (
        rf"\b({VERSIONED} ?)(\d+(?:\.\d+)+)(?![\w]|,\d)",
        lambda m: f"{m[1]}{version(m[2])}",
    ),
    (
        rf"(?<![\w.@-])([^\W_][\w-]*)\.({FILE})(?![\w-]|\.\w)",
        lambda m: f"{m[1]} Punkt {m[2].replace('.', ' Punkt ')}",
    ),
    (r"(?<=\d)\"(?=-[A-ZÄÖÜ])", lambda m: "-Zoll"),
    (r"\b([CF])#(?!\w)", lambda m: f"{m[1]} Sharp"),
    (r"(?<!\w)#(?=[^\W\d])", lambda m: "Hashtag "),
]
# after the dates
POINTED = [(r"(?<![\w.,:])\d+(?:\.\d+)+(?![\w]|,\d|\.\d)", pointed)]
