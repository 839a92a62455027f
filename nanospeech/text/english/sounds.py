"""Sounds: words that the CMU dictionary lacks or has wrong, or whose second sound is commoner.

A table alone, in ARPAbet; ../phonemes.py puts it over the dictionary.
"""

from __future__ import annotations

# words whose commonest reading the dictionary lists second, or that running speech weakens
COMMONEST = """
a: AH0; an: AH0 N; and: AH0 N D; are: AA1 R; because: B IH0 K AO1 Z; live: L IH1 V;
lives: L IH1 V Z; of: AH0 V; or: AO1 R; our: AW1 ER0; read: R IY1 D; the: DH AH0; to: T UW1;
use: Y UW1 Z; used: Y UW1 Z D; close: K L OW1 Z; wind: W IH1 N D; content: K AA1 N T EH0 N T;
minute: M IH1 N AH0 T; minutes: M IH1 N AH0 T S; record: R EH1 K ER0 D;
present: P R EH1 Z AH0 N T; object: AA1 B JH EH0 K T; tear: T IH1 R; tears: T IH1 R Z; bow: B OW1;
wound: W UW1 N D; lead: L IY1 D; house: HH AW1 S; excuse: IH0 K S K Y UW1 Z; i: AY1; re: R IY1;
deja: D EY1 ZH AA2; aka: EY1 K EY1 EY1
"""
# what people utter without a vowel
UTTERED = """
brr: B ER1; brrr: B ER1; grr: G ER1; grrr: G ER1; mm: M; mmm: M; pfft: P F T; pst: P S T;
psst: P S T; tsk: T IH1 S K; zzz: Z
"""
# words that the dictionary has wrong or lacks; "expozay" and "rozay" as foreign.py spells them
CORRECTED = """
abdomen: AE1 B D AH0 M AH0 N; abs: AE1 B Z; acai: AA2 S AA0 IY1; agave: AH0 G AA1 V EY2;
amygdala: AH0 M IH1 G D AH0 L AH0; anemone: AH0 N EH1 M AH0 N IY0;
antecedent: AE2 N T AH0 S IY1 D AH0 N T; antimatter: AE1 N T IY0 M AE2 T ER0;
arithmetic: ER0 IH1 TH M AH0 T IH2 K; atheism: EY1 TH IY0 IH2 Z AH0 M;
aubergine: OW1 B ER0 ZH IY2 N; auschwitz: AW1 SH V IH0 T S; autoimmune: AO2 T OW0 IH0 M Y UW1 N;
backseat: B AE1 K S IY2 T; begotten: B IH0 G AA1 T AH0 N; belarus: B EH2 L AH0 R UW1 S;
beret: B ER0 EY1; bolognese: B OW2 L AH0 N EY1 Z; boudoir: B UW1 D W AA2 R; bruges: B R UW1 ZH;
caesarean: S IH0 Z EH1 R IY0 AH0 N; cannes: K AE1 N; capitulate: K AH0 P IH1 CH AH0 L EY2 T;
celebratory: S EH1 L AH0 B R AH0 T AO2 R IY0; chardonnay: SH AA2 R D AH0 N EY1;
chianti: K IY0 AA1 N T IY0; chimera: K AY0 M IH1 R AH0; concrete: K AA1 N K R IY2 T;
costume: K AA1 S T UW2 M; costumes: K AA1 S T UW2 M Z; cyclone: S AY1 K L OW2 N;
cyclones: S AY1 K L OW2 N Z; decade: D EH1 K EY2 D; decades: D EH1 K EY2 D Z;
dengue: D EH1 NG G IY0; desiree: D EH2 Z ER0 EY1; detach: D IH0 T AE1 CH;
dopamine: D OW1 P AH0 M IY2 N; doth: D AH1 TH; dunedin: D AH0 N IY1 D AH0 N;
electrolyte: IH0 L EH1 K T R AH0 L AY2 T; electrolytes: IH0 L EH1 K T R AH0 L AY2 T S;
elitism: IH0 L IY1 T IH2 Z AH0 M; endurance: EH0 N D UH1 R AH0 N S; ennui: AA0 N W IY1;
ensuing: EH0 N S UW1 IH0 NG; essay: EH1 S EY2; essays: EH1 S EY2 Z;
excellency: EH1 K S AH0 L AH0 N S IY0; exploited: IH0 K S P L OY1 T IH0 D;
exploiting: IH0 K S P L OY1 T IH0 NG; expozay: EH2 K S P OW0 Z EY1; faux: F OW1;
fiancee: F IY2 AA0 N S EY1; fiennes: F AY1 N Z; foie: F W AA1; forbidden: F ER0 B IH1 D AH0 N;
forearm: F AO1 R AA2 R M; forearms: F AO1 R AA2 R M Z; fuchsia: F Y UW1 SH AH0; gaol: JH EY1 L;
gnocchi: N Y OW1 K IY0; goethe: G ER1 T AH0; grandeur: G R AE1 N JH ER0; gras: G R AA1;
guangzhou: G W AA1 NG JH OW2; gulag: G UW1 L AA2 G; hippocrates: HH IH0 P AA1 K R AH0 T IY2 Z;
hormonal: HH AO0 R M OW1 N AH0 L; hors: AO1 R; imam: IH0 M AA1 M;
immeasurable: IH0 M EH1 ZH ER0 AH0 B AH0 L; immeasurably: IH0 M EH1 ZH ER0 AH0 B L IY0;
inexplicable: IH2 N IH0 K S P L IH1 K AH0 B AH0 L;
infrastructure: IH1 N F R AH0 S T R AH2 K CH ER0; insecure: IH2 N S IH0 K Y UH1 R;
intrigued: IH0 N T R IY1 G D; kazan: K AH0 Z AA1 N; knesset: K AH0 N EH1 S AH0 T;
leant: L EH1 N T; legit: L AH0 JH IH1 T; lesotho: L AH0 S UW1 T UW0; lingerie: L AA2 N ZH ER0 EY1;
lobotomy: L AH0 B AA1 T AH0 M IY0; loci: L OW1 S AY2; loire: L W AA1 R; lourdes: L UH1 R D;
maeve: M EY1 V; mandala: M AH1 N D AH0 L AH0; manoeuvre: M AH0 N UW1 V ER0;
marseilles: M AA0 R S EY1; meringue: M ER0 AE1 NG; merlot: M ER0 L OW1;
misogynist: M AH0 S AA1 JH AH0 N IH0 S T; misogynists: M AH0 S AA1 JH AH0 N IH0 S T S;
misogyny: M AH0 S AA1 JH AH0 N IY0; mitre: M AY1 T ER0; moines: M OY1 N; mosul: M OW1 S UH0 L;
nantes: N AA1 N T; neuronal: N UH1 R AH0 N AH0 L; neuropathy: N UH0 R AA1 P AH0 TH IY0;
niamh: N IY1 V; nightshade: N AY1 T SH EY2 D; noir: N W AA1 R; oaxaca: W AH0 HH AA1 K AH0;
ocular: AA1 K Y AH0 L ER0; outshine: AW2 T SH AY1 N; paella: P AY0 EH1 L AH0;
paparazzi: P AA2 P ER0 AA1 T S IY0; paraplegic: P EH2 R AH0 P L IY1 JH IH0 K;
phenomenology: F AH0 N AA2 M AH0 N AA1 L AH0 JH IY0; pinot: P IY1 N OW0;
presenter: P R IH0 Z EH1 N T ER0; presenters: P R IH0 Z EH1 N T ER0 Z;
promiscuous: P R AH0 M IH1 S K Y UW0 AH0 S; proust: P R UW1 S T; provence: P R OW0 V AA1 N S;
psychopathology: S AY2 K OW0 P AH0 TH AA1 L AH0 JH IY0; putting: P UH1 T IH0 NG;
pyjamas: P AH0 JH AA1 M AH0 Z; pythagoras: P AH0 TH AE1 G ER0 AH0 S;
pythagorean: P AH0 TH AE2 G ER0 IY1 AH0 N; radiate: R EY1 D IY0 EY2 T; recess: R IY1 S EH2 S;
recreate: R IY2 K R IY0 EY1 T; recreated: R IY2 K R IY0 EY1 T IH0 D;
recreates: R IY2 K R IY0 EY1 T S; recreating: R IY2 K R IY0 EY1 T IH0 NG; rehab: R IY1 HH AE2 B;
resounding: R IH0 Z AW1 N D IH0 NG; reusable: R IY0 Y UW1 Z AH0 B AH0 L; reused: R IY0 Y UW1 Z D;
reuses: R IY0 Y UW1 Z IH0 Z; rewind: R IY0 W AY1 N D; rozay: R OW0 Z EY1; salve: S AE1 V;
sceptical: S K EH1 P T IH0 K AH0 L; scythe: S AY1 DH; segue: S EH1 G W EY2;
simile: S IH1 M AH0 L IY0; siobhan: SH IH0 V AO1 N; sommelier: S AH2 M AH0 L Y EY1;
steroid: S T EH1 R OY2 D; sunscreen: S AH1 N S K R IY2 N; superbly: S UW0 P ER1 B L IY0;
superfluous: S UW0 P ER1 F L UW0 AH0 S; surcharge: S ER1 CH AA2 R JH; tarot: T EH1 R OW0;
telephony: T AH0 L EH1 F AH0 N IY0; thyme: T AY1 M; tinged: T IH1 N JH D;
tomography: T AH0 M AA1 G R AH0 F IY0; touche: T UW0 SH EY1; traverse: T R AH0 V ER1 S;
traversed: T R AH0 V ER1 S T; triage: T R IY1 AA2 ZH; typology: T AY0 P AA1 L AH0 JH IY0;
underage: AH2 N D ER0 EY1 JH; undiagnosed: AH0 N D AY2 AH0 G N OW1 S T; unite: Y UW0 N AY1 T;
uno: UW1 N OW0; upright: AH1 P R AY2 T; uprising: AH1 P R AY2 Z IH0 NG;
verbally: V ER1 B AH0 L IY0; viscount: V AY1 K AW2 N T; viscounts: V AY1 K AW2 N T S;
whats: W AH1 T S; winona: W AH0 N OW1 N AH0; wuhan: W UW2 HH AA1 N; xian: SH IY1 AA2 N;
xinjiang: SH IH1 N JH Y AA2 NG; zhou: JH OW1
"""
# forms of words with several sounds (heteronyms.py) that have one alone, mostly the verb's
INFLECTED = """
absented: AE0 B S EH1 N T IH0 D; allying: AH0 L AY1 IH0 NG; bowing: B AW1 IH0 NG;
buffeted: B AH1 F AH0 T IH0 D; buffeting: B AH1 F AH0 T IH0 NG; communed: K AH0 M Y UW1 N D;
compacting: K AH0 M P AE1 K T IH0 NG; conscripting: K AH0 N S K R IH1 P T IH0 NG;
contracted: K AH0 N T R AE1 K T IH0 D; contracting: K AH0 N T R AE1 K T IH0 NG;
deserter: D IH0 Z ER1 T ER0; deserters: D IH0 Z ER1 T ER0 Z; deserting: D IH0 Z ER1 T IH0 NG;
digested: D AY0 JH EH1 S T IH0 D; entrancing: EH0 N T R AE1 N S IH0 NG;
escorting: EH0 S K AO1 R T IH0 NG; frequented: F R IY0 K W EH1 N T IH0 D;
frequenting: F R IY0 K W EH1 N T IH0 NG; houses: HH AW1 Z IH0 Z; incensed: IH2 N S EH1 N S T;
minutely: M AY0 N UW1 T L IY0; mows: M OW1 Z; rewound: R IY0 W AW1 N D; sowed: S OW1 D;
tormented: T AO0 R M EH1 N T IH0 D; tormenting: T AO0 R M EH1 N T IH0 NG
"""
# words and names younger than the dictionary
YOUNG = """
airbnb: EH1 R B IY2 AH0 N B IY2; aoife: IY1 F AH0; ar: EY1 AA1 R; assange: AH0 S AA1 N ZH;
bachelorette: B AE2 CH AH0 L ER0 EH1 T; barcode: B AA1 R K OW2 D; barcodes: B AA1 R K OW2 D Z;
bezos: B EY1 Z OW0 S; bidet: B IH0 D EY1; bihar: B IH0 HH AA1 R; brexit: B R EH1 K S IH0 T;
bundesliga: B UH1 N D AH0 S L IY2 G AH0; busan: B UW1 S AA2 N; buttigieg: B UW1 T IH0 JH EH2 JH;
carriageway: K EH1 R IH0 JH W EY2; ceviche: S AH0 V IY1 CH EY0; chalamet: SH AE1 L AH0 M EY2;
chamois: SH AE1 M IY0; chatgpt: CH AE1 T JH IY1 P IY1 T IY1; cheltenham: CH EH1 L T AH0 N AH0 M;
chorizo: CH AO0 R IY1 Z OW0; ciaran: K IH1 R AH0 N; cillian: K IH1 L IY0 AH0 N;
codec: K OW1 D EH2 K; codeine: K OW1 D IY2 N; coutinho: K OW0 T IY1 N Y OW0; covid: K OW1 V IH0 D;
cpus: S IY1 P IY1 Y UW1 Z; crohn's: K R OW1 N Z; crudites: K R UW2 D IH0 T EY1; ct: S IY1 T IY1;
cython: S AY1 TH AA2 N; djokovic: JH OW1 K AH0 V IH0 CH; duterte: D UW0 T EH1 R T EY0;
duvet: D UW0 V EY1; dwyane: D W EY1 N; ecommerce: IY1 K AA2 M ER0 S; eilish: AY1 L IH0 SH;
elearning: IY1 L ER2 N IH0 NG; elon: IY1 L AA0 N; emoji: IH0 M OW1 JH IY0; eoin: OW1 IH0 N;
erdogan: ER1 D AH0 W AA2 N; esports: IY1 S P AO2 R T S; ethereum: IH0 TH IH1 R IY0 AH0 M;
exoplanet: EH1 K S OW0 P L AE2 N AH0 T; expat: EH1 K S P AE2 T; expats: EH1 K S P AE2 T S;
farage: F ER0 AA1 ZH; foci: F OW1 S AY2; fulham: F UH1 L AH0 M; fyi: EH1 F W AY1 AY1;
gadot: G AH0 D OW1 T; giannis: Y AA1 N IH0 S; gif: G IH1 F; gitlab: G IH1 T L AE2 B;
golang: G OW1 L AE2 NG; gouda: G UW1 D AH0; gov't: G AH1 V ER0 M AH0 N T;
govt: G AH1 V ER0 M AH0 N T; gpu: JH IY1 P IY1 Y UW1; gpus: JH IY1 P IY1 Y UW1 Z;
hadith: HH AH0 D IY1 TH; halal: HH AH0 L AA1 L; hawai'i: HH AH0 W AY1 IY0; hijab: HH IH0 JH AA1 B;
hijabs: HH IH0 JH AA1 B Z; hipaa: HH IH1 P AH0; homie: HH OW1 M IY0;
http: EY1 CH T IY1 T IY1 P IY1; https: EY1 CH T IY1 T IY1 P IY1 EH1 S; huawei: W AA1 W EY2;
hypothyroidism: HH AY2 P OW0 TH AY1 R OY2 D IH2 Z AH0 M; i'ma: AY1 M AH0; i'mma: AY1 M AH0;
idk: AY1 D IY1 K EY1; im: AY1 M; imo: AY1 EH1 M OW1; isil: AY1 S IH0 L; json: JH EY1 S AH0 N;
juventus: Y UW0 V EH1 N T AH0 S; kaepernick: K AE1 P ER0 N IH0 K; kamala: K AA1 M AH0 L AH0;
kanye: K AA1 N Y EY2; keir: K IH1 R; keira: K IH1 R AH0; kherson: K ER0 S AO1 N;
kombucha: K AA0 M B UW1 CH AH0; kpop: K EY1 P AA2 P; kubernetes: K UW2 B ER0 N EH1 T IY0 Z;
kyiv: K IY1 V; lasagne: L AH0 Z AA1 N Y AH0; leanne: L IY0 AE1 N; leinster: L EH1 N S T ER0;
lenovo: L AH0 N OW1 V OW0; libre: L IY1 B R AH0; liquorice: L IH1 K ER0 IH0 SH;
livestream: L AY1 V S T R IY2 M; llama: L AA1 M AH0; lmao: EH1 L EH1 M EY1 OW1;
lmfao: EH1 L EH1 M EH1 F EY1 OW1; macos: M AE1 K OW1 EH1 S; macron: M AH0 K R AO1 N;
mammy: M AE1 M IY0; matcha: M AA1 CH AH0; mbappe: AH0 M B AA0 P EY1;
metaverse: M EH1 T AH0 V ER2 S; moderna: M AH0 D ER1 N AH0; mojito: M OW0 HH IY1 T OW0;
mongodb: M AA1 NG G OW0 D IY1 B IY1; mourinho: M AO0 R IY1 N Y OW0; navalny: N AH0 V AA1 L N IY0;
neymar: N EY0 M AA1 R; nougat: N UW1 G AH0 T; ok'd: OW1 K EY1 D; omelette: AA1 M L AH0 T;
omelettes: AA1 M L AH0 T S; omg: OW1 EH1 M JH IY1; openai: OW1 P AH0 N EY1 AY1;
opioid: OW1 P IY0 OY2 D; opioids: OW1 P IY0 OY2 D Z; papyrus: P AH0 P AY1 R AH0 S;
paracetamol: P EH2 R AH0 S IY1 T AH0 M AO2 L; patreon: P EY1 T R IY0 AA2 N; penne: P EH1 N EY2;
pharrell: F ER0 EH1 L; pls: P L IY1 Z; pytorch: P AY1 T AO1 R CH; qatari: K AH0 T AA1 R IY0;
quesadilla: K EY2 S AH0 D IY1 AH0; quesadillas: K EY2 S AH0 D IY1 AH0 Z; queso: K EY1 S OW0;
qur'an: K ER0 AA1 N; quran: K ER0 AA1 N; radii: R EY1 D IY0 AY2;
rajasthan: R AA1 JH AH0 S T AA2 N; ramen: R AA1 M AH0 N; regex: R EH1 JH EH0 K S;
remix: R IY1 M IH0 K S; ronaldinho: R OW2 N AA0 L D IY1 N Y OW0; rotherham: R AA1 DH ER0 AH0 M;
s'mores: S M AO1 R Z; saith: S EH1 TH; salford: S AO1 L F ER0 D; sangria: S AE0 NG G R IY1 AH0;
saoirse: S ER1 SH AH0; sciatica: S AY0 AE1 T IH0 K AH0; siena: S IY0 EH1 N AH0;
sinead: SH IH0 N EY1 D; sirloin: S ER1 L OY2 N; skylar: S K AY1 L ER0; spacex: S P EY1 S EH1 K S;
sqlite: EH1 S K Y UW1 EH1 L AY1 T; sriracha: S ER0 AA1 CH AH0; sudoku: S UW0 D OW1 K UW0;
sunak: S UW1 N AE2 K; swansea: S W AA1 N Z IY0; tamale: T AH0 M AA1 L IY0; taupe: T OW1 P;
thiago: T IY0 AA1 G OW0; thx: TH AE1 NG K S; tikka: T IY1 K AH0; tiktok: T IH1 K T AA2 K;
timothee: T IH1 M AH0 TH IY0; twickenham: T W IH1 K AH0 N AH0 M; ubuntu: UH0 B UH1 N T UW0;
udon: UW1 D AA2 N; unhcr: Y UW1 EH1 N EY1 CH S IY1 AA1 R; unis: Y UW1 N IY0 Z;
utrecht: Y UW1 T R EH2 K T; vlog: V L AO1 G; vocoder: V OW1 K OW2 D ER0; voip: V OY1 P;
volodymyr: V AA1 L AH0 D IH2 M IH0 R; webcam: W EH1 B K AE2 M; wechat: W IY1 CH AE2 T;
wikimedia: W IH2 K IY0 M IY1 D IY0 AH0; wollongong: W UH1 L AH0 NG G AO2 NG;
wrestlemania: R EH2 S AH0 L M EY1 N IY0 AH0; xavi: CH AA1 V IY0; xiaomi: SH AW1 M IY0;
xmas: K R IH1 S M AH0 S; y'all: Y AO1 L; yall: Y AO1 L; zaporizhzhia: Z AA2 P AH0 R IY1 ZH AH0;
zelensky: Z AH0 L EH1 N S K IY0; zelenskyy: Z AH0 L EH1 N S K IY0; zlatan: Z L AA1 T AH0 N
"""
# acronyms that are words, and names that no rule of spelling reads
ACRONYMS = """
arxiv: AA1 R K AY2 V; btwn: B AH0 T W IY1 N; chmod: CH AH0 M AA1 D; ftse: F UH1 T S IY0;
fwd: F AO1 R W ER0 D; iban: AY1 B AE2 N; qty: K W AA1 N T AH0 T IY0; szn: S IY1 Z AH0 N;
cuda: K UW1 D AH0; ebitda: IY1 B IH0 T D AA2; eslint: IY1 EH1 S L IH1 N T;
ffmpeg: EH1 F EH1 F EH1 M P EH2 G; fomo: F OW1 M OW0; gaap: G AE1 P;
gitignore: G IH1 T IH0 G N AO2 R; href: EY1 CH R EH1 F; hwy: HH AY1 W EY2; iaas: AY1 AE2 S;
img: IH1 M IH0 JH; jpeg: JH EY1 P EH2 G; jsonl: JH EY1 S AH0 N EH1 L; kwargs: K EY1 W AA2 R G Z;
mkdir: EH1 M K EY1 D IH1 R; nginx: EH1 N JH AH0 N EH1 K S; numpy: N AH1 M P AY2;
omw: OW1 EH1 M D AH1 B AH0 L Y UW0; paas: P AE1 S; plz: P L IY1 Z; ppl: P IY1 P AH0 L;
pypi: P AY1 P IY1 AY1; pytest: P AY1 T EH2 S T; rsync: AA1 R S IH1 NG K; rte: R UW1 T;
saas: S AE1 S; sata: S EY1 T AH0; scipy: S AY1 P AY2; sklearn: EH1 S K EY1 L ER1 N;
stderr: S T AE1 N D ER0 D EH1 R ER0; stdin: S T AE1 N D ER0 D IH1 N;
stdout: S T AE1 N D ER0 D AW1 T; tmrw: T AH0 M AA1 R OW2; tmux: T IY1 M AH1 K S;
tsconfig: T IY1 EH1 S K AA1 N F IH0 G; ttyl: T IY1 T IY1 W AY1 EH1 L; uefa: Y UW0 EY1 F AH0;
utd: Y UW0 N AY1 T IH0 D; vscode: V IY1 EH1 S K OW1 D; wget: D AH1 B AH0 L Y UW0 G EH1 T;
yaml: Y AE1 M AH0 L; yml: Y AE1 M AH0 L
"""
TABLES = (COMMONEST, UTTERED, CORRECTED, INFLECTED, YOUNG, ACRONYMS)


def corrections() -> dict[str, str]:
    """Word to phonemes of all tables, as "AH0 N D" strings."""
    rows = (row.split(":") for table in TABLES for row in table.replace("\n", " ").split(";"))
    return {word.strip(): said.strip() for word, said in rows}
