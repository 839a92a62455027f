"""Heteronyms: words of one spelling and several sounds, with the sound of each reading.

A table alone; ../heteronyms.py chooses by the words around.
"""

from __future__ import annotations

from collections.abc import Mapping

from . import words

# noun (and adjective) first, then verb; their forms in -s follow from these
NOUN_OR_VERB = """
absent: AE1 B S AH0 N T; AE0 B S EH1 N T
abstract: AE1 B S T R AE2 K T; AE0 B S T R AE1 K T
abuse: AH0 B Y UW1 S; AH0 B Y UW1 Z
accent: AE1 K S EH2 N T; AE2 K S EH1 N T
addict: AE1 D IH0 K T; AH0 D IH1 K T
address: AE1 D R EH2 S; AH0 D R EH1 S
affix: AE1 F IH0 K S; AH0 F IH1 K S
ally: AE1 L AY0; AH0 L AY1
annex: AE1 N EH2 K S; AH0 N EH1 K S
attribute: AE1 T R AH0 B Y UW2 T; AH0 T R IH1 B Y UW0 T
buffet: B AH0 F EY1; B AH1 F AH0 T
combine: K AA1 M B AY0 N; K AH0 M B AY1 N
commune: K AA1 M Y UW0 N; K AH0 M Y UW1 N
compact: K AA1 M P AE0 K T; K AH0 M P AE1 K T
compound: K AA1 M P AW0 N D; K AH0 M P AW1 N D
compress: K AA1 M P R EH0 S; K AH0 M P R EH1 S
conduct: K AA1 N D AH0 K T; K AH0 N D AH1 K T
conflict: K AA1 N F L IH0 K T; K AH0 N F L IH1 K T
conscript: K AA1 N S K R IH2 P T; K AH0 N S K R IH1 P T
console: K AA1 N S OW0 L; K AH0 N S OW1 L
consort: K AA1 N S AO0 R T; K AH0 N S AO1 R T
construct: K AA1 N S T R AH2 K T; K AH0 N S T R AH1 K T
contest: K AA1 N T EH0 S T; K AH0 N T EH1 S T
contract: K AA1 N T R AE2 K T; K AH0 N T R AE1 K T
contrast: K AA1 N T R AE0 S T; K AH0 N T R AE1 S T
converse: K AA1 N V ER0 S; K AH0 N V ER1 S
convert: K AA1 N V ER0 T; K AH0 N V ER1 T
convict: K AA1 N V IH0 K T; K AH0 N V IH1 K T
decrease: D IY1 K R IY2 S; D IH0 K R IY1 S
defect: D IY1 F EH0 K T; D IH0 F EH1 K T
desert: D EH1 Z ER0 T; D IH0 Z ER1 T
diffuse: D IH0 F Y UW1 S; D IH0 F Y UW1 Z
digest: D AY1 JH EH0 S T; D AY0 JH EH1 S T
discharge: D IH1 S CH AA2 R JH; D IH0 S CH AA1 R JH
discount: D IH1 S K AW0 N T; D IH0 S K AW1 N T
entrance: EH1 N T R AH0 N S; EH0 N T R AE1 N S
escort: EH1 S K AO0 R T; EH0 S K AO1 R T
excuse: IH0 K S K Y UW1 S; IH0 K S K Y UW1 Z
exploit: EH1 K S P L OY2 T; IH0 K S P L OY1 T
export: EH1 K S P AO0 R T; IH0 K S P AO1 R T
extract: EH1 K S T R AE2 K T; IH0 K S T R AE1 K T
ferment: F ER1 M EH0 N T; F ER0 M EH1 N T
fragment: F R AE1 G M AH0 N T; F R AE0 G M EH1 N T
frequent: F R IY1 K W AH0 N T; F R IY0 K W EH1 N T
house: HH AW1 S; HH AW1 Z
impact: IH1 M P AE2 K T; IH2 M P AE1 K T
implant: IH1 M P L AE2 N T; IH2 M P L AE1 N T
import: IH1 M P AO2 R T; IH2 M P AO1 R T
imprint: IH1 M P R IH2 N T; IH2 M P R IH1 N T
incense: IH1 N S EH2 N S; IH2 N S EH1 N S
incline: IH1 N K L AY0 N; IH2 N K L AY1 N
increase: IH1 N K R IY2 S; IH2 N K R IY1 S
insert: IH1 N S ER2 T; IH2 N S ER1 T
insult: IH1 N S AH2 L T; IH2 N S AH1 L T
misprint: M IH1 S P R IH2 N T; M IH0 S P R IH1 N T
misuse: M IH0 S Y UW1 S; M IH0 S Y UW1 Z
object: AA1 B JH EH0 K T; AH0 B JH EH1 K T
overhaul: OW1 V ER0 HH AO2 L; OW2 V ER0 HH AO1 L
overlap: OW1 V ER0 L AE2 P; OW2 V ER0 L AE1 P
overrun: OW1 V ER0 R AH2 N; OW2 V ER0 R AH1 N
perfect: P ER1 F IH2 K T; P ER0 F EH1 K T
permit: P ER1 M IH2 T; P ER0 M IH1 T
pervert: P ER1 V ER0 T; P ER0 V ER1 T
present: P R EH1 Z AH0 N T; P R IY0 Z EH1 N T
produce: P R OW1 D UW0 S; P R AH0 D UW1 S
progress: P R AA1 G R EH2 S; P R AH0 G R EH1 S
project: P R AA1 JH EH0 K T; P R AH0 JH EH1 K T
protest: P R OW1 T EH2 S T; P R AH0 T EH1 S T
rebel: R EH1 B AH0 L; R IH0 B EH1 L
recall: R IY1 K AO2 L; R IH0 K AO1 L
record: R EH1 K ER0 D; R AH0 K AO1 R D
recount: R IY1 K AW2 N T; R IH0 K AW1 N T
refill: R IY1 F IH0 L; R IY0 F IH1 L
refund: R IY1 F AH2 N D; R IH0 F AH1 N D
refuse: R EH1 F Y UW2 Z; R AH0 F Y UW1 Z
reject: R IY1 JH EH0 K T; R IH0 JH EH1 K T
relapse: R IY1 L AE2 P S; R IY0 L AE1 P S
replay: R IY1 P L EY2; R IY0 P L EY1
reprint: R IY1 P R IH2 N T; R IY0 P R IH1 N T
resume: R EH1 Z AH0 M EY2; R IH0 Z UW1 M
retake: R IY1 T EY2 K; R IY0 T EY1 K
reuse: R IY0 Y UW1 S; R IY0 Y UW1 Z
rewrite: R IY1 R AY2 T; R IY0 R AY1 T
segment: S EH1 G M AH0 N T; S EH0 G M EH1 N T
sow: S AW1; S OW1
subject: S AH1 B JH IH0 K T; S AH0 B JH EH1 K T
survey: S ER1 V EY2; S ER0 V EY1
suspect: S AH1 S P EH2 K T; S AH0 S P EH1 K T
torment: T AO1 R M EH2 N T; T AO0 R M EH1 N T
transfer: T R AE1 N S F ER0; T R AE0 N S F ER1
transplant: T R AE1 N S P L AE2 N T; T R AE0 N S P L AE1 N T
transport: T R AE1 N S P AO0 R T; T R AE0 N S P AO1 R T
update: AH1 P D EY2 T; AH0 P D EY1 T
upgrade: AH1 P G R EY2 D; AH0 P G R EY1 D
uplift: AH1 P L IH0 F T; AH0 P L IH1 F T
upset: AH1 P S EH2 T; AH0 P S EH1 T
use: Y UW1 S; Y UW1 Z
"""
# verbs end in EY2 T, adjectives and nouns in AH0 T
ATE = words(
    """advocate affiliate aggregate alternate animate appropriate approximate articulate associate
    consummate coordinate degenerate delegate deliberate designate desolate duplicate elaborate
    estimate graduate incorporate initiate intimate moderate postulate precipitate predicate
    separate subordinate syndicate"""
)
# those that are verbs more often than not
MOSTLY_VERBS = frozenset(words(
    """recall suspect reject defect convert produce use permit transfer survey diffuse console
    combine construct excuse exploit conscript consort converse commune compress update upgrade
    refuse resume reuse incorporate coordinate ferment torment implant sow"""
))  # fmt: skip
# those that are verbs where a clause begins with them: "Combine flour and salt."
COMMANDS = frozenset(words(
    """address combine compress conduct construct contrast convert decrease delegate estimate export
    extract import incorporate increase initiate insert permit present produce recall record refill
    refuse reject replay resume reuse rewrite separate sow transfer transplant update upgrade use"""
))  # fmt: skip
_TRADE = """ban bans business businesses charges controls cost costs demand duties
    duty earnings fee fees figures growth industries industry levels license licenses licence
    licences limits crops subsidies market markets orders permit permits price prices quota quotas
    restrictions revenue revenues rules sales substitution tariff tariffs tax taxes trade volume
    volumes error errors statement statements button"""
# words that make a compound with one of them
COMPOUNDS = {word: frozenset(words(others)) for word, others in {
    "address": "bar bars book books change changes field fields label labels line lines list lists"
    " lookup proof space system systems unknown verification",
    "conduct": "at by disorder disorders in like on unbecoming",
    "contrast": "agent agents bath dye enhancement in level levels media medium radio ratio ratios"
    " sensitivity with",
    "present": "at circumstances company continuous day in participle perfect progressive simple"
    " state tense time value values worth",
    "combine": "harvester harvesters operator operators driver drivers",
    "construct": "validity",
    "convert": "numbers",
    "decrease": "in",
    "estimate": "for from on",
    "export": _TRADE,
    "import": _TRADE,
    "increase": "in",
    "insert": "mode modes",
    "permit": "holder holders fee fees number numbers office application applications requirement"
    " requirements system systems to for from",
    "produce": "aisle aisles section department departments stand stands market markets price"
    " prices buyer buyers sales shelves",
    "recall": "notice notices election elections vote",
    "record": "album amount amounts attendance attendances book books breaking cold collection"
    " collections collector collectors companies company crowd crowds deal deals drought earnings"
    " executive executives growth harvest harvests heat high highs holder holders keeper keepers"
    " keeping label labels levels losses low lows number numbers player players price prices"
    " producer producers profit profits rain rainfall rains sales setting shop shops snow snowfall"
    " spending store stores time turnout type types warmth year years",
    "refill": "packs pack bottles pouches",
    "refuse": "bag bags bin bins collection collections collector collectors disposal dump dumps"
    " site sites truck trucks worker workers",
    "reject": "pile rate rates",
    "replay": "value",
    "resume": "builder gaps template templates tips writing",
    "separate": "accounts bathroom bathrooms bedrooms beds bills checks cheques entrance entrances"
    " from rooms studies ways",
    "transfer": "deadline fee fees market news payment payments pricing request requests rumor"
    " rumors rumour rumours speed speeds station stations student students window windows",
    "transplant": "list lists patient patients recipient recipients surgeon surgeons surgery"
    " waiting",
    "update": "by for from in note notes on",
    "upgrade": "cost costs path paths option options",
    "use": "case cases value values",
}.items()}  # fmt: skip
# words that make a compound with one of them behind
COMPOUNDS_BEFORE = {word: frozenset(words(others)) for word, others in {
    "console": "game games gaming video center centre developer browser admin web management",
    "consoles": "game games gaming video",
    "permits": "building export fishing hunting import parking planning residence travel work",
    "use": "alcohol drug electricity energy fuel household internet land media phone substance"
    " tobacco water",
    "graduates": "school schools college university law business medical engineering academy",
    "records": "court police phone school bank tax property hospital health world album vinyl",
}.items()}  # fmt: skip
# words by which a rule of ../heteronym_rules.py or its verbs knows a reading
CUES = {name: frozenset(words(cues)) for name, cues in {
    "metals": "pipe pipes paint poisoning metal metals pencil gasoline weights weight heavy"
    " bullet bullets toxic copper zinc mercury iron tin poison solder shielding acid battery"
    " batteries roof contaminated melted molten levels ore shot soldiers like",
    "shows": "show shows music performance performances broadcast audience audiences concert"
    " television tv coverage stream animals animal band bands event events ammunition bait wire"
    " wires video album recording recordings sports theater updates birth chat feed jazz interview"
    " rounds update action demo game games track version crowd comedy lobster lobsters crabs"
    " chickens",
    "performed": "broadcast perform performed performing air aired stream streamed streaming went"
    " goes going go reported reporting recorded played play playing sing sang watch watched shown"
    " carried televised tune coming came see seen saw appear appeared speak spoke watching watches"
    " recording records streams streaming airs plays playing performs singing hear heard catch"
    " caught broadcasts broadcasting join joins joined joining",
    "saved": "lose loses lost save saves saved saving claim claimed claims cost costs change"
    " changed ruined risk risked risking own living lived spend spent million thousand hundred"
    " dozen human private everyday two three nine improve improved touched taking enrich double of"
    " many",
    "cloth": "fabric muscle ligament tissue cloth shirt jacket jeans paper knee cartilage sail"
    " repair repaired dress meniscus tendon curtain curtains tent sleeve pants trousers skirt"
    " hamstring acl cuff retina sock bag seam canvas tore torn rip mend mended sew sewed patch",
    "crying": "eye eyes cheek cheeks face fell rolled ran shed wiped wipe gas cry cried duct"
    " ducts",
    "ships": "ship boat stern deck vessel sail sailed hull waves ferry port yacht canoe anchor"
    " sea submarine sailor sailors captain",
    "fish": "fish fishing sea striped largemouth smallmouth lake river caught catch pond trout"
    " salmon boat angler anglers fillet grilled fried hook bait perch",
    "music": "player players guitar guitars guitarist line lines drum drums clef solo solos note"
    " notes singer singers voice amp speaker speakers clarinet",
    "near friends": "to together enough friend friends relationship relationships by call calls"
    " range attention look ties tie contact quarters relative relatives second race game family"
    " proximity match eye watch behind match-up colleague allies ally cousin cousins associates up"
    " encounter",
    "tiny": "attention care detail details amount amounts quantities quantity particle particles"
    " difference differences traces trace changes fragments creatures organisms crystals cracks"
    " inspection examination scale print crack hole holes grains proportion proportions variations",
    "schools": "school schools student students program programs degree degrees studies",
    "people": "father mother man woman parents relatives aunt uncle gentleman lady couple wife"
    " husband son daughter sister brother child",
    "quarrels": "bitter diplomatic political terrible huge blazing massive heated furious big"
    " almighty public violent fierce fresh",
    "moods": "happy calm quiet warm safe healthy peaceful relaxed satisfied full comfortable"
    " well serene cheerful glad rested fed",
    "persistence": "determination persistence pursuit resistance effort devotion refusal defense"
    " reporting optimism insistence courage",
}.items()}  # fmt: skip
# other words: readings by name; rules for each are in ../heteronyms.py
OTHERS = """
analyses: several AH0 N AE1 L AH0 S IY2 Z; verb AE1 N AH0 L AY2 Z IH0 Z
diagnoses: several D AY2 AH0 G N OW1 S IY0 Z; verb D AY2 AH0 G N OW1 S IH0 Z
proceeds: several P R OW1 S IY0 D Z; verb P R AH0 S IY1 D Z
aged: years EY1 JH D; old EY1 JH IH0 D
august: month AO1 G AH0 S T; grand AO0 G AH1 S T
axes: tools AE1 K S IH0 Z; lines AE1 K S IY2 Z
bases: grounds B EY1 S IH0 Z; basis B EY1 S IY2 Z
bass: music B EY1 S; fish B AE1 S
blessed: verb B L EH1 S T; holy B L EH1 S IH0 D
bow: knot B OW1; bend B AW1
bows: knot B OW1 Z; bend B AW1 Z
close: shut K L OW1 Z; near K L OW1 S
content: matter K AA1 N T EH0 N T; glad K AH0 N T EH1 N T
dogged: verb D AO1 G D; stubborn D AO1 G IH0 D
deserts: sand D EH1 Z ER0 T S; due D IH0 Z ER1 T S
des: name D EH1 Z; city D AH0
dove: bird D AH1 V; dived D OW1 V
invalid: void IH0 N V AE1 L AH0 D; ill IH1 N V AH0 L IH0 D
job: work JH AA1 B; name JH OW1 B
lead: guide L IY1 D; metal L EH1 D
led: verb L EH1 D; initials EH1 L IY1 D IY1
learned: verb L ER1 N D; wise L ER1 N IH0 D
live: verb L IH1 V; now L AY1 V
lives: verb L IH1 V Z; life L AY1 V Z
minute: time M IH1 N AH0 T; tiny M AY0 N UW1 T
misread: now M IH0 S R IY1 D; past M IH0 S R EH1 D
moped: bike M OW1 P EH2 D; sulked M OW1 P T
nice: kind N AY1 S; city N IY1 S
polish: shine P AA1 L IH0 SH; land P OW1 L IH0 SH
proofread: now P R UW1 F R IY2 D; past P R UW1 F R EH2 D
read: now R IY1 D; past R EH1 D
reading: verb R IY1 D IH0 NG; town R EH1 D IH0 NG
reread: now R IY0 R IY1 D; past R IY0 R EH1 D
row: line R OW1; quarrel R AW1
sat: verb S AE1 T; initials EH1 S EY1 T IY1
tear: eye T IH1 R; rip T EH1 R
tears: eye T IH1 R Z; rip T EH1 R Z
used: verb Y UW1 Z D; habit Y UW1 S T
wind: air W IH1 N D; turn W AY1 N D
winds: air W IH1 N D Z; turn W AY1 N D Z
wound: hurt W UW1 N D; turned W AW1 N D
"""


def _rows(table: str) -> dict[str, list[str]]:
    """word: readings, as they stand in a table."""
    lines = (line.partition(": ") for line in table.strip().split("\n"))
    return {word: readings.split("; ") for word, _, readings in lines}


def readings(ate: Mapping[str, str]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Of each word the phonemes of each of its readings, by name: "noun", "verb" and others.

    Args:
        ate: the dictionary's phonemes of words in -ate.
    """
    found = {
        word: {"noun": tuple(noun.split()), "verb": tuple(verb.split())}
        for word, (noun, verb) in _rows(NOUN_OR_VERB).items()
    }
    for word in ATE:
        stem = ate[word].split()[:-2]
        found[word] = {"noun": (*stem, "AH0", "T"), "verb": (*stem, "EY2", "T")}
    for word, several in _rows(OTHERS).items():
        named = (reading.partition(" ") for reading in several)
        found[word] = {name: tuple(sound.split()) for name, _, sound in named}
    return found
