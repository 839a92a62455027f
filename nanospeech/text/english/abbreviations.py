"""Abbreviations: titles, short forms, initials and acronyms."""

from __future__ import annotations

import re

from . import STARTERS, STARTS, any_of, romans, words
from .dates import stop
from .number_words import cardinal, digits, several

# before a name; those of BARE need no dot
TITLES = {"Mr": "Mister", "Mrs": "Missus", "Ms": "Ms", "Dr": "Doctor", "Prof": "Professor"}
TITLES |= {"Capt": "Captain", "Gen": "General", "Col": "Colonel", "Lt": "Lieutenant"}
TITLES |= {"Sgt": "Sergeant", "Rev": "Reverend", "Gov": "Governor", "Sen": "Senator"}
TITLES |= {"Maj": "Major", "Cpl": "Corporal", "Pvt": "Private", "Adm": "Admiral"}
TITLES |= {"Cmdr": "Commander", "Rep": "Representative", "Pres": "President", "Hon": "Honorable"}
TITLES |= {"Supt": "Superintendent", "Det": "Detective", "Insp": "Inspector", "Fr": "Father"}
TITLES |= {"Drs": "Doctors", "Messrs": "Messrs", "Sens": "Senators", "Reps": "Representatives"}
TITLES |= {"Brig": "Brigadier", "Atty": "Attorney", "Amb": "Ambassador"}
TITLES |= {"Mt": "Mount", "Ft": "Fort", "St": "Saint", "Sgts": "Sergeants", "Profs": "Professors"}
TITLES |= {"Mme": "Madame", "Mlle": "Mademoiselle", "Asst": "Assistant"}
BARE = "Mr|Mrs|Ms|Dr|Drs|Prof|St|Mme|Mlle"
# without a dot too
RANKS = "Mt|Ft|Capt|Sgt|Lt|Col|Cpl|Maj|Cmdr"
OTHERS = {"e.g.": "for example", "i.e.": "that is", "etc.": "et cetera", "vs.": "versus"}
OTHERS |= {"e.g": "for example", "i.e": "that is", "approx.": "approximately", "cf.": "compare"}
OTHERS |= {"viz.": "namely", "et al.": "and others", "ca.": "circa", "incl.": "including"}
OTHERS |= {"Approx.": "Approximately"}
LIMITS = {"Max": "Maximum", "Min": "Minimum", "Avg": "Average"}
OTHERS |= {"E.g.": "For example", "I.e.": "That is", "ret.": "retired"}
OTHERS |= {"excl.": "excluding", "max.": "maximum", "avg.": "average"}
OTHERS |= {
    "Dept.": "Department",
    "dept.": "department",
    "Govt.": "Government",
    "govt.": "government",
}
OTHERS |= {
    "Univ.": "University",
    "Assn.": "Association",
    "Natl.": "National",
    "Intl.": "International",
}
OTHERS |= {
    "Ph.D.": "PhD",
    "Ph.D": "PhD",
    "B.Sc.": "BSc",
    "M.Sc.": "MSc",
    "&c.": "et cetera",
}
OTHERS |= {"tel.": "telephone", "Tel.": "telephone", "misc.": "miscellaneous", "ext.": "extension"}
OTHERS |= {"asst.": "assistant", "mgr.": "manager", "Mgr.": "Manager", "pct.": "percent"}
OTHERS |= {"acct.": "account", "Acct.": "Account", "lat.": "latitude"}
OTHERS |= {"Suppl.": "Supplementary", "suppl.": "supplementary"}
OTHERS |= {"pkg.": "package", "pkgs.": "packages", "lg.": "large"}
OTHERS |= {"appt.": "appointment", "encl.": "enclosed", "pls.": "please"}
OTHERS |= {"a.m.": "ay em", "p.m.": "pee em", "a.k.a.": "ay K ay", "attn.": "attention"}
CHAT = {"gr8": "great", "l8": "late", "l8r": "later", "m8": "mate", "w8": "wait"}
CHAT |= {"2nite": "tonight", "2day": "today", "2moro": "tomorrow", "ur": "your"}
CHAT |= {"b/c": "because", "mtg": "meeting", "mtgs": "meetings", "sry": "sorry", "Sry": "Sorry"}
CHAT |= {"appt": "appointment", "appts": "appointments", "Mtg": "Meeting"}
CHAT |= {"Gr8": "Great", "L8r": "Later"}  # but M8 is a motorway, and W8 a part of London
# what never ends a sentence, whatever follows: "e.g. London"
LEADING = {"e.g.", "i.e.", "E.g.", "I.e.", "cf.", "viz.", "vs.", "ca.", "incl.", "excl.", "approx."}
LEADING |= {"a.k.a.", "Approx.", "Suppl.", "suppl.", "asst.", "pls."}
# parts of names: a capital after them is mostly not a new sentence
FIRMS = {"Inc": "Incorporated", "Ltd": "Limited", "Co": "Company", "Corp": "Corporation"}
FIRMS |= {"St": "Street", "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "Hwy": "Highway"}
FIRMS |= {"Pkwy": "Parkway", "Sq": "Square", "Ln": "Lane", "Ct": "Court", "Pl": "Place"}
FIRMS |= {"Bros": "Brothers", "Jr": "Junior", "Sr": "Senior", "Esq": "Esquire"}
COUNTED = {"No": "number", "Nos": "numbers", "Fig": "figure", "Figs": "figures", "Vol": "volume"}
COUNTED |= {"Ch": "chapter", "Art": "article", "Sec": "section", "Eq": "equation", "Op": "opus"}
COUNTED |= {"Pt": "part", "Est": "established", "p": "page", "pp": "pages", "fig": "figure"}
COUNTED |= {"Vols": "volumes", "vols": "volumes", "Rte": "route", "Apt": "apartment"}
COUNTED |= {"Bldg": "building", "Rm": "room", "Ste": "suite", "Fl": "floor", "Ext": "extension"}
COUNTED |= {"Tab": "table", "Ref": "reference", "Refs": "references"}
COUNTED |= {"sec": "section", "eq": "equation", "Eqs": "equations", "eqs": "equations"}
COUNTED |= {"Prop": "proposition", "no": "number", "nos": "numbers"}
COUNTED |= {"fn": "footnote", "Ep": "episode", "Eps": "episodes", "Sect": "section"}
COUNTED |= {"para": "paragraph", "paras": "paragraphs"}
COUNTED |= {"figs": "figures", "vol": "volume", "ch": "chapter", "est": "established"}
# words too, which end a sentence before "I": "No. I won't."; and a year alone is established
UNCOUNTED = r"(?:Art|Ext|[Nn]o|Prop|Refs?|Tab)\.\s*I(?:,?\s+[a-z]|['’])|[Ee]st\.\s*[A-Z]"
STATES = {"Ala": "Alabama", "Ariz": "Arizona", "Ark": "Arkansas", "Calif": "California"}
STATES |= {"Colo": "Colorado", "Conn": "Connecticut", "Del": "Delaware", "Fla": "Florida"}
STATES |= {"Ga": "Georgia", "Ill": "Illinois", "Ind": "Indiana", "Kan": "Kansas", "Ky": "Kentucky"}
STATES |= {"La": "Louisiana", "Md": "Maryland", "Mass": "Massachusetts", "Mich": "Michigan"}
STATES |= {"Minn": "Minnesota", "Miss": "Mississippi", "Mo": "Missouri", "Mont": "Montana"}
STATES |= {"Neb": "Nebraska", "Nev": "Nevada", "Okla": "Oklahoma", "Ore": "Oregon"}
STATES |= {"Pa": "Pennsylvania", "Tenn": "Tennessee", "Tex": "Texas", "Va": "Virginia"}
STATES |= {"N.H": "New Hampshire", "N.J": "New Jersey", "N.M": "New Mexico", "N.Y": "New York"}
STATES |= {"N.C": "North Carolina", "N.D": "North Dakota", "R.I": "Rhode Island"}
STATES |= {"S.C": "South Carolina", "S.D": "South Dakota", "W.Va": "West Virginia"}
STATES |= {"Vt": "Vermont", "Wash": "Washington", "Wis": "Wisconsin", "Wyo": "Wyoming"}
CODES = dict(
    pair.split(":")
    for pair in words(
        """AL:Alabama AK:Alaska AZ:Arizona AR:Arkansas CA:California CO:Colorado CT:Connecticut
        DE:Delaware FL:Florida GA:Georgia HI:Hawaii ID:Idaho IL:Illinois IN:Indiana IA:Iowa
        KS:Kansas KY:Kentucky LA:Louisiana ME:Maine MD:Maryland MA:Massachusetts MI:Michigan
        MN:Minnesota MS:Mississippi MO:Missouri MT:Montana NE:Nebraska NV:Nevada
        NH:New_Hampshire NJ:New_Jersey NM:New_Mexico NY:New_York NC:North_Carolina
        ND:North_Dakota OH:Ohio OK:Oklahoma OR:Oregon PA:Pennsylvania RI:Rhode_Island
        SC:South_Carolina SD:South_Dakota TN:Tennessee TX:Texas UT:Utah VT:Vermont VA:Virginia
        WA:Washington WV:West_Virginia WI:Wisconsin WY:Wyoming"""
    )
)
# after a name and a comma mostly something else: "Well, OK", "Ann Lee, MD"
NO_STATES = set(words("OK HI MD MA PA MS ID DE"))
# those that are no other word and need no comma before them
PLAIN_STATES = words("Ariz Calif Colo Conn Fla Mich Minn Neb Nev Okla Tenn Wis Wyo")
# what a name before "St." makes a street even before another name: "on Wall St. Stocks fell"
STREETS = set(words("Wall Main Fleet Market State Canal Bourbon Baker High Broad Oxford Bond"))
WAYS = {"St": "Street", "Dr": "Drive"}
WAYS |= {k: FIRMS[k] for k in words("Ave Blvd Rd Hwy Pkwy Sq Ln Ct Pl")}
QUARTERS = {"NW": "northwest", "NE": "northeast", "SW": "southwest", "SE": "southeast"}
# nouns that a letter follows: "vitamin A is", not "for A Few Dollars"
LETTERED = words(
    """Appendix Block Box Category Class Column Company Exhibit Figure Gate Grade Group Hepatitis
    Influenza Item League Level Line Model Option Part Plan Platform Point Room Row School Section
    Serie Series Side Step Table Team Terminal Type Unit Vitamin"""
)
# nouns that a single letter ends a sentence after, as after those: "We chose plan B. Tom didn't."
LETTER_NAMED = words(
    """Answer Apt Apartment Building Chapter Choice Exit Floor Generation Gen Letter Lot Problem
    Question Suite Tier Track Variable Vitamins Wing Zone"""
)
GRADED = "got|gets?|getting|earn(?:ed|s)?|received?|gave|give|given|me|him|her|us|them|not"
LETTER_BEFORE = re.compile(
    rf"(?:\b(?i:{any_of([*LETTERED, *LETTER_NAMED])})\.? |equals |= |\bkey of "
    r"|\b(?i:answer|choice|letter|type|grade)(?: is|:) |\b(?:[A-Z]|ay) (?:and|or|to) )[A-Z]\Z"
    rf"|\b(?:{GRADED}) (?:only )?an? [A-DFU]\Z"
    r"|\b(?:(?:twen|thir|for|fif|six|seven|eigh|nine)(?:ty|teen)(?:-[a-z]+)?|hundred) [A-Z]\Z"
)
# what follows a mark that a teacher gave: "a B- in Latin"
MARKED = "(?:in|on|for|average|student|grade|and|or|to)"
# capitals that are named letter by letter although they look like words
SPELLED = "US|UN|AI|ID|OS|LA|AD|DA|ER|LED|BCE|MA|PA|CA|VA|MS|PO|DEA"
# nouns that "IT" in capitals is more than "it" before
COMPUTING = """support department team teams industry specialist specialists manager managers staff
system systems consultant company companies service services security professional professionals
infrastructure sector skills job jobs project projects budget director equipment help desk"""
PERIODS = {"y": "year", "q": "quarter", "m": "month"}
SENTENCE = re.compile(rf"\s*\Z|\s+[\"'(]?{STARTS}\b|[\"')]*\s*\Z")
END = re.compile(r"[\"')]*\s*\Z")
NO_STREET = {*STARTERS, *TITLES.values(), *FIRMS.values()}
# a Latin name, by its ending: "coli", "aureus", "elegans"
SPECIES = r"(?!minus\b|plus\b|this\b)[a-z]{2,20}(?:us|is|um|ae|i|a|ans|iens|ile)\b"
SPECIES += r"|(?:van|von|de|di|du|la|le|bin) (?:[a-z]{2,3} )?[A-Z]"  # or a surname's beginning

NAME = re.compile(r"\s+[A-Z]")
INITIAL = re.compile(r"[A-Z]\.")


def letters(text: str) -> str:
    """Capitals one by one; "A" by its name, or it would be read as the article."""
    return " ".join("ay" if c == "A" else c for c in text if c.isalpha())


def in_name(m: re.Match) -> str:
    """The dot of an abbreviation within a name: kept only before what begins a sentence."""
    return "." if SENTENCE.match(m.string, m.end()) else ""


def _letters(m: re.Match) -> str:
    return letters(m[1]) + in_name(m)


def _street(m: re.Match) -> str:
    """St. and Dr. after a name, unless a name follows too: "Main St.", not "Jill St. John"."""
    begins = in_name(m)
    if m[1].split()[-1] in STREETS and m[2] == "St":
        return f"{m[1]} Street" + (begins or "." * bool(NAME.match(m.string, m.end())))
    if m[1] in NO_STREET or (
        NAME.match(m.string, m.end()) and not begins and not m[1][0].isdigit()
    ):
        return m[0]
    return f"{m[1]} {'Street' if m[2] == 'St' else 'Drive'}{begins}"


def _spoons(m: re.Match) -> str:
    """tbsp and tsp.; behind a digit they are left to the units."""
    front = m.string[max(0, m.start() - 10) : m.start()]
    if re.search(r"(?:\d ?|\w)\Z", front):
        return m[0]
    single = re.search(r"\b(?:one|an?|half|heaped|level|per) \Z", front)
    return f"{'table' if m[1] else 'tea'}spoon{'' if single else 's'}{stop(m, m[2])}"


def _state(m: re.Match) -> str:
    return m[1] + CODES[m[2] or m[3]].replace("_", " ")


def _initial(m: re.Match) -> str:
    """An initial without its dot, which a letter that is a name keeps: "vitamin C. Carrots"."""
    before = m.string[max(0, m.start() - 30) : m.end(1)]
    stop = "." if not INITIAL.match(m.string, m.end()) and LETTER_BEFORE.search(before) else ""
    return ("ay" if m[1] == "A" else m[1]) + stop + " "


def _abbreviated(m: re.Match) -> str:
    """Prince N. and bill S. 47, whose sentence goes on; "plan B. then" does not."""
    before = m.string[max(0, m.start() - 30) : m.end(1)]
    return m[0] if LETTER_BEFORE.search(before) else letters(m[1])


def _spelled(m: re.Match) -> str:
    return letters(m[1]) + ("'s" if m[2] else "")


def _other(m: re.Match) -> str:
    ends = END.match(m.string, m.end()) if m[1] in LEADING else None
    return OTHERS[m[1]] + ("." if ends else "" if m[1] in LEADING else stop(m, m[1][-1]))


def _title(m: re.Match) -> str:
    return TITLES[(m[1] or m[2]).capitalize()] + " "


def _doses(m: re.Match) -> str:
    return (
        f"every {cardinal(int(m[1]))}" + (f" to {cardinal(int(m[2]))}" if m[2] else "") + " hours"
    )


SIDES = {"N": "North", "S": "South", "E": "East", "W": "West"}
ROADS = (
    rf"(?:{'|'.join(WAYS)}|Street|Avenue|Boulevard|Road|Drive|Highway|Parkway|Square|Lane|Court"
    r"|Place|Way|Terrace|Plaza|Circle|Loop|Trail|Walk)\b"
)
UPPER = "|".join(k.upper() for k in TITLES if k not in ("Rep", "Det", "Fr", "Gen", "Pres"))
RULES = [
    # the side of a street: "350 W. 57th St." and "12 N Oak Tree Ave"
    (
        rf"(?<=\d )([NSEW])\.?(?= (?:\d+(?:st|nd|rd|th)(?: {ROADS}|[.,]|\s*\Z)"
        rf"|(?:[A-Z][a-z]+ ){{1,3}}{ROADS}))",
        lambda m: SIDES[m[1]],
    ),
    (rf"\b([NSEW])\.(?= \d+(?:st|nd|rd|th) {ROADS})", lambda m: SIDES[m[1]]),
    (
        rf"\b([A-Z][a-z]+, )(?:({'|'.join(CODES)})(?= \d{{5}}\b)"
        rf"|({'|'.join(k for k in CODES if k not in NO_STATES)})"
        r"(?=[.,;:!?)\"']|(?<!\bOR|\bIN|\bME|\bOH) [a-z]|\s*\Z))",
        _state,
    ),
    (rf"(, |[DRI]-)({any_of(STATES)})\.(?!\w)", lambda m: m[1] + STATES[m[2]] + in_name(m)),
    (rf"({'|'.join(CODES)})(?<=\b[DRI]-\w\w)(?=[),])", lambda m: CODES[m[1]].replace("_", " ")),
    (rf"\b({any_of(PLAIN_STATES)})\.(?!\w)", lambda m: STATES[m[1]] + in_name(m)),
    (r"\bSt\.?-(?=[A-Z][a-zé])", lambda m: "Saint-"),
    (r"\b((?:\d+ )?[A-Z][a-z]+|\d+(?:st|nd|rd|th)) (St|Dr)\.(?!\w)", _street),
    (r"\bGen\.? ([XYZ])\b", lambda m: f"Gen {m[1]}"),
    (rf"\b(?:({BARE})\.?|({any_of(TITLES)}|{UPPER})\.)\s+(?=[A-Z]|1st\b)", _title),
    (rf"\b()({any_of(TITLES)})\.(?=[A-Z][a-z])", _title),
    (r"(?<=\d) Ft\b", lambda m: " ft"),  # "6 Ft Tall"
    (rf"\b()({RANKS})\s+(?=[A-Z][a-z])", _title),
    (r"\bSec\.(?= of\b)", lambda m: "Secretary"),
    (r"\b(Mr|Mrs|Dr)\.(?= (?:and|or|&) )", lambda m: TITLES[m[1]]),
    (
        r"\b((?:\d+[A-Z]? (?:[NSEW] )?(?:(?!Mount|Fort|Port|Lake)[A-Z][a-z]+ ){1,2}"
        rf"|\d+(?:st|nd|rd|th) ))({'|'.join(WAYS)})"
        r"(?=[,;:!?)]|\s[a-z\d#]|\s(?:Apt|Suite|Unit|[NS][EW])\b|\s*\Z)",
        lambda m: m[1] + WAYS[m[2]],
    ),
    (rf"\b({any_of(FIRMS)})\.(?!\w)", lambda m: FIRMS[m[1]] + in_name(m)),
    (r"\bPh\.D\.?s\b", lambda m: "PhDs"),
    # no minutes, and no Max: "min. 5 people", "Max. capacity"
    (
        r"(?<![\w.-])(?<!\d )min\.(?= [\d$£€]| (?:wage|age|order|size|height|deposit|charge"
        r"|purchase|temp|temperature|spend|stay)\b)",
        lambda m: "minimum",
    ),
    (r"(?:^|(?<=[\n(])|(?<=[.,;:] ))(Max|Min|Avg)\.(?= [a-z\d$£€])", lambda m: LIMITS[m[1]]),
    (rf"(?<![\w.])({any_of(OTHERS)})(?!\w)", _other),
    # formulae and names whose letters are a word too: CO2, SO2
    (r"(?<![^\W\d_])([A-Z]?[AEIOU][A-Z]?)(?=\d)(?<=[A-Z]{2})", lambda m: letters(m[1])),
    (
        rf"\b(?!{UNCOUNTED})({any_of(COUNTED)})\.\s*(?=\d|[IVXLC]+\b)",
        lambda m: COUNTED[m[1]] + " ",
    ),
    (r"(?<=[a-z,;] )No (?=\d)", lambda m: "number "),
    (r"\b[Nn]o\.(?=\s+of\b)", lambda m: "number"),
    (r"(?<=\d[nrst][dht][ -])c\.(?= (?:BC|CE|AD|B\.C|A\.D))", lambda m: "century"),
    (r"(\d(?:st|nd|rd|th)[ -])(c\.)(?!\w)", lambda m: m[1] + "century" + stop(m, ".")),
    (r"\b([HhXx])\.?(26[3-6])\b", lambda m: f"{m[1]} {digits(m[2])}"),  # "H.264"
    (r"(?<![\w.])([A-Z])\.(?=\d)", lambda m: letters(m[1]) + " dot "),
    (
        r"\b([NS][EW])\b(?= of\b)|(?:(?<=Avenue )|(?<=Street ))([NS][EW])\b",
        lambda m: QUARTERS[m[0]],
    ),
    (r"\b[Ww]i-[Ff]i\b", lambda m: "WiFi"),
    # "E. coli" and "S. aureus"
    (rf"(?<![\w.])((?:[A-Z]\. ){{0,3}}[A-HJ-Z])\. (?={SPECIES})", lambda m: letters(m[1]) + " "),
    (r"\b[NS][EW]\b(?:(?= winds?\b)|(?<=[Ww]inds \w\w))", lambda m: QUARTERS[m[0]]),
    (r"DR (?=Congo\b)(?<!\wDR )", lambda m: "D R "),
    (r"OP\b(?<=-OP)|OP(?=-ED\b)(?<!\wOP)", lambda m: "op"),  # no initials in "CO-OP"
    (
        r"EST\.? (?<!\wEST )(?<!\wEST\. )(?<![AP]M EST )(?<![AP]M EST\. )(?=1\d{3}\b|20\d\d\b)",
        lambda m: "established ",
    ),
    # "pop. 5,000" and "temp. 20", but "a loud pop. 3 men" and "as a temp. He"
    (r"\b([Pp])op\.\s?(?=\d[\d,]{2}|[\d.]{1,6} million)", lambda m: f"{m[1]}opulation "),
    (r"\b([Tt])emp\.(?=:| [a-z\d])", lambda m: f"{m[1]}emperature"),
    (r"t(b?)sp(?!\w)(\.(?!\w))?", _spoons),
    (r" lg(?<=\d lg)(?= [a-z]{3})", lambda m: " large"),
    (r" sm(?<=\d sm)(?= [a-z]{3})", lambda m: " small"),
    (
        r"(?<=\d[nrst][dht] )(ed|gen)\.(?!\w)",
        lambda m: ("edition" if m[1] == "ed" else "generation") + stop(m, "."),
    ),
    (r"est\.(?<=\b\d{4} est\.)(?=[),;])", lambda m: "estimate"),
    (rf"(?<![\w.])({any_of(CHAT)})(?!\w)", lambda m: CHAT[m[1]]),
    (r"\b([Ee]qs?)\.\s*(?=\()", lambda m: COUNTED[m[1]] + " "),
    (r"c\.(?<!\wc\.)(?<!\d c\.)\s?(?=\d{3,4}\b|\d{1,3},\d{3})", lambda m: "circa "),
    (r"\b([bd])\.\s?(?=\d{4}\b)", lambda m: "born " if m[1] == "b" else "died "),
    (r"\bWW(II?)\b", lambda m: f"World War {cardinal(len(m[1]))}"),
    (rf"\b([A-DF])-(?=[.,;:!?)]|\s*\Z|\s{MARKED}\b)", lambda m: letters(m[1]) + " minus"),
    (r"\bA(?=[+-](?!\w))", lambda m: "ay"),
    (r"\bAM(?= (?:radio|station|band)s?\b)", lambda m: letters(m[0])),
    (
        r"([35])(?<!\w[35])'(?= (?:ends?|UTRs?|cap|to [35]'|untranslated)\b|-[a-z])",
        lambda m: f"{m[1]} prime",
    ),
    (
        r"\bA3([1-8]0)(?:(s)\b)?(?=(neo)?)(?!\d)",
        lambda m: "ay three " + (several if m[2] else str)(cardinal(int(m[1]))) + " " * bool(m[3]),
    ),  # "A380-800", "A320s"
    # amperes behind volts, or behind a decimal
    (r"(?<=\d)( ?V(?:,| ?/| at| @)? ?\d+(?:\.\d+)?) ?A\b", lambda m: f"{m[1]} amps"),
    (r"(?<=\d\.\d) ?A\b(?! ?[a-z\d])", lambda m: " amps"),
    # the letter "A", not the article
    (r"(?<![^\W\d_])A(?=\d)|\bA(?=-(?!a\b)[a-z\d]|[-/][B-Z]\b)|(?<=\w-)A\b(?!-)", lambda m: "ay"),
    (r"(?<=\d)[Aa]\b(?!\.\w)", lambda m: " ay"),
    (r"(?<=\()[Aa](?=\))|(?<![\w(])a(?=\) )|(?<=\")A(?=\")|\bA(?='s\b)", lambda m: "ay"),
    (r"(?<=\b[Aa]n )A\b", lambda m: "ay"),
    (rf"\b({any_of(LETTERED)}|{any_of(LETTERED).lower()}) A\b(?! ?[A-Z])", lambda m: m[1] + " ay"),
    (r"\bA(?= (?:&|to|and|or|versus|through) [B-Z]\b)", lambda m: "ay"),
    (r"(?<=[A-Za-z])#(?=\d)", lambda m: " number "),
    (r"#\s?(?=\d)", lambda m: "number "),
    (r"\b([Vv]ersions? )v\.?(?=\d)", lambda m: m[1]),
    (r"\bv\.?(?=\d)", lambda m: "version "),
    (r"(?<=[\w%\"'.] )(?:v|vs)\.?(?= [A-Z\d$£€])", lambda m: "versus"),
    (r"(?<!\w)w/o(?!\w)", lambda m: "without"),
    (r"(?<!\w)w/(?=\s?\w)", lambda m: "with "),
    (r"(?<!\w)c/o(?!\w)", lambda m: "care of"),
    # "a 25 y/o", "30yo woman", but "she is 25 y.o."
    (
        r"\b(an? )?(\d{1,3})[ -]?y(?:/?o|\.o\.)(?![\w-])(?=( [a-z])?)",
        lambda m: (
            f"{m[1] or ''}{m[2]} year{'s' * (not (m[1] or m[3]))} old"
            + stop(m, "." * (m[0][-1] == "."))
        ),
    ),
    # doses: "q6h", "q4-6h" and "500 mg x 7 days"
    (r"\bq(\d{1,2})(?:-(\d{1,2}))?h(?:rs?)?\b", _doses),
    (r"(?:(?<=[a-z.] )|(?<=[A-Z]{2} ))x (?=\d{1,3} (?:day|week|month|dose)s?\b)", lambda m: "for "),
    # "5% p.a.", "£30,000 p.a."
    (
        r"(?:(?<=[\dk%])|(?<=[bmlt]n)|(?<=\dm)|(?<=lion)) ?p\.a\.(?!\w)|(?<=%) ?pa\b",
        lambda m: " per year" + stop(m, "." * (m[0][-1] == ".")),
    ),
    (
        r"(?<!\w)(?:([yq])/\1|([YQM])(?:/|o)\2)(?!\w)",
        lambda m: "{0} over {0}".format(PERIODS[m[0][0].lower()]),
    ),
    (
        r"(?<=\d)( ?)([mk])\.p\.([hg])(?!\w)(\.(?!\w))?",
        lambda m: f"{m[1]}{m[2]}p{m[3]}" + stop(m, m[4]),
    ),
    (r"\b((?:[A-Z]\.){2,})(?!\w)", _letters),
    (r"\b((?:[A-Z]\.){1,3}[A-Z])\b(?!\.)", lambda m: letters(m[1])),
    (r"(?<![\w.])((?:[a-z]\.){2,})(?!\w)", lambda m: letters(m[1].upper()) + in_name(m)),
    *romans.RULES,
    (
        rf"(?<![A-Z][A-Z] )(?<![A-Z][A-Z][.,!?] )(?<![^\W\d_])({SPELLED})"
        r"(s|(?! [A-Z]{2}))(?![^\W\d_])(?!\$)",
        _spelled,
    ),
    # in a headline: "US TO LIFT TARIFFS", "IN THE US MARKET", but not "TELL US ALL"
    (r"US(?= [A-Z]{2})(?:(?<=\AUS)|(?<=[.:;!?] US)|(?<=\bTHE US))", lambda m: letters(m[0])),
    (rf"(?<![A-Z] )\bIT(?= (?:{'|'.join(COMPUTING.split())})\b)", lambda m: letters(m[0])),
    (r"(?<=\b[Ii]n )IT(?=[.,;!?]|\s*\Z)", lambda m: letters(m[0])),
    (r"\b([Aa]n|[Tt]he|[Oo]ur) (IT|WHO)\b(?= [a-z\d]|'s)", lambda m: f"{m[1]} {letters(m[2])}"),
    # initials lose their dots: "J. K. Rowling", "George W. Bush", "Robert I. Bouck"
    (rf"\b([A-HJ-Z])\.\s+(?=[A-Z][a-z.'])(?!{STARTS}\b(?!\.))", _initial),
    (rf"\b(?=[A-Z])(?!{STARTS}\b)([A-Z][a-z]+ I|I)\.\s+(?=[A-Z]\.)", _initial),
    (rf"\b(?=[A-Z])(?!{STARTS}\b)([A-Z][a-z]+ I)\.\s+(?=[A-Z][a-z])(?!{STARTS}\b)", _initial),
    (
        r"(?<![\w.'&])([A-HJ-Z])\.(?=[*_]{0,3} {1,2}(?:[+$£€¥₹#&<>=@~%µ]|[-.*_]{0,3}[a-z\d]))",
        _abbreviated,
    ),
    (r"(?<=[ \\/|&+=@^*_<>~])A(?=[.,;:!?)]|$)(?!\.\w)", lambda m: "ay"),  # "Plan A."
]
