"""Texts that people have read out most: answers, code, papers, business, chats."""

from __future__ import annotations

import pytest

from nanospeech.text.sentences import fit, prepare
from nanospeech.text.spoken import say_word
from nanospeech.text.tokenizer import Tokenizer, phoneme_vocab
from tests.text.test_normalize import read_out

PHONEMES = Tokenizer("phonemes", phoneme_vocab())

SENTENCES = [
    # chats
    ("So funny :D lol", "So funny lol"),
    ("I won :P We ate, ok xD!", "I won. We ate, ok!"),
    ("Thanks <3 <3, I <3 you", "Thanks, I love you"),
    ("for x <3, if n <3 and p <3.", "for x less than three, if n less than three and p less than "
     "three."),
    # commands
    ("Pass -v or --verbose, (--no-color), \"--dry-run\".", "Pass dash v or dash dash verbose, "
     "(dash dash no-color), \"dash dash dry-run\"."),
    ("Set --output=a.wav and the -f flag, -j4, rm -rf x", "Set dash dash output equals ay dot wav "
     "and the dash f flag, -j four, rm dash r f x"),
    ("He said --and left. A man --tired of it-- left", "He said - and left. A man - tired of it - "
     "left"),
    ("I -I left--not you -b", "I -I left - not you -b"),
    # kitchens and weather
    ("Bake at 180° C or 350° F.", "Bake at one hundred eighty degrees Celsius or three hundred "
     "fifty degrees Fahrenheit."),
    ("It was 20 deg. C, with a C-clamp at 90° C-wards.", "It was twenty degrees Celsius, with a "
     "C-clamp at ninety degrees C-wards."),
    ("Low -5C, high 3C", "Low minus five degrees Celsius, high three degrees Celsius"),
    ("gate B-5C", "gate B-five C"),
    ("1 (14-oz.) can, and a box (8 oz.) of salt", "one (fourteen ounce) can, and a box (eight "
     "ounces) of salt"),
    ("(It was 5 p.m.) He left.", "(It was five pee em.) He left."),
    ("Dec '23, Tue 4th, Sept. '05", "December twenty-three, Tuesday fourth, September oh five"),
    ("min. 5 people, 20 min. 5 more", "minimum five people, twenty minutes five more"),
    ("Max. capacity: 20. Min. 5 per car.", "Maximum capacity: twenty. Minimum five per car."),
    ("I saw Max. He left.", "I saw Max. He left."),
    ("a 25 y/o, 30yo woman of 5 y.o.", "a twenty-five year old, thirty year old woman of five "
     "years old."),
    ("a 5 μM dose", "a five micromolar dose"),
    ("1,000s of people, 10,000s more", "thousands of people, ten thousands more"),
    ("a 404 page, HTTP 503, 404 pages", "a four oh four page, HTTP five oh three, four hundred "
     "four pages"),
    # bets
    ("A 33/1 outsider at odds of 7/2", "A thirty-three to one outsider at odds of seven to two"),
    ("a 1/4 chance at 3/4 speed", "a one quarter chance at three quarters speed"),
    # business
    ("$0.45/share, $5/user/month, $1.2M/unit", "forty-five cents per share, five dollars per user "
     "per month, one point two million dollars per unit"),
    ("$3/1M tokens", "three dollars per one million tokens"),
    ("100 sqft at $200/sq ft", "one hundred square feet at two hundred dollars per square foot"),
    ("5% p.a., £30,000 p.a. Then 3% pa", "five percent per year, thirty thousand pounds per year. "
     "Then three percent per year"),
    ("Sales rose YoY, not QoQ.", "Sales rose year over year, not quarter over quarter."),
    ("Yields rose 4bps.", "Yields rose four basis points."),
    ("The Fed made a 25 bps cut.", "The Fed made a twenty-five basis point cut."),
    ("A link of 300 bps", "A link of three hundred bits per second"),
    ("A loss of $(1.2) million", "A loss of minus one point two million dollars"),
    ("A $25M Series B", "A twenty-five million dollar Series B"),
    ("The dollar bought ¥156.2.", "The dollar bought one hundred fifty-six point two yen."),
    ("It fell 3 pct. on Friday.", "It fell three percent on Friday."),
    ("Q4'23 and H1'24", "Q four twenty-three and H one twenty-four"),
    ("Hours: Sat 10-4, Sun 9am.", "Hours: Saturday ten to four, Sunday nine ay em."),
    ("The Sun 3 days later", "The Sun three days later"),
    ("Senator Lee (D-MA) of a B-MA", "Senator Lee (D-Massachusetts) of a B-M ay"),
    # what is copied, and what is counted
    ("Your code is 482913.", "Your code is four eight two nine one three."),
    ("Account number: 12345678", "Account number: one two three four five six seven eight"),
    ("Exit code 137.", "Exit code one hundred thirty-seven."),
    ("There were 482913 of them.", "There were four hundred eighty-two thousand nine hundred"
     " thirteen of them."),
    # code
    ("`user.isActive`, df.head()", "'user dot isActive', df dot head()"),
    ("So it was.then it ended.", "So it was.then it ended."),
    ("git reset HEAD~1 for ~5 files", "git reset HEAD one for about five files"),
    ("v2.3.1-beta.4 or 3.x", "version two point three point one beta four or three point x"),
    ("Set it to 5s (default: 10s).", "Set it to fives (default: ten seconds)."),
    ("Map 8080:80 at 1000:1.", "Map eight thousand eighty to eighty at one thousand to one."),
    # papers
    ("E. coli and S. aureus grew.", "E coli and S aureus grew."),
    ("Plan B. they left", "Plan B. they left"),
    ("The U.S. minimum wage", "The U S minimum wage"),
    ("Fe³⁺, SO₄²⁻ and Na⁺", "Fe three plus, S O four two minus and Na plus"),
    ("5 kcal/mol, 20 µM, 47 μF", "five kilocalories per mole, twenty micromolar, forty-seven"
     " microfarads"),
    ("σ² by ¹⁴C and ²³⁵U", "sigma squared by C-fourteen and U-two hundred thirty-five"),
    ("5,690/km²", "five thousand six hundred ninety per square kilometer"),
    ("a 3×3 matrix, 5 × 4 = 20", "a three by three matrix, five times four equals twenty"),
    ("3×10⁸ m/s", "three times ten to the power of eight meters per second"),
    ("4m x 3.5m and 10 × 15 cm", "four meters by three point five meters and ten by fifteen"
     " centimeters"),
    ("10 kΩ, 400 N·m, 2·3", "ten kilo ohms, four hundred newton meters, two times three"),
    ("5 V, 2 A; 2.4A; Gate 5A", "five volts, two amps; two point four amps; Gate five ay"),
    ("the α-helix", "the alpha-helix"),
    ("f(x - a) and n - 1", "f(x minus ay) and n minus one"),
    ("Plan B - a better one", "Plan B - a better one"),
    ("c. 6,400 km (2021 est.)", "circa six thousand four hundred kilometers (twenty twenty-one"
     " estimate)"),
    ("Suppl. Table 1 and Sect. 4.1, 7(iii)", "Supplementary Table one and section four point one,"
     " seven(three)"),
    ("a 1:10 ratio at 1:10", "a one to ten ratio at one ten"),
    ("the 5' end, 1/x", "the five prime end, one over x"),
    ("Picard (/piˈkɑːrd/) is a captain.", "Picard is a captain."),
    ("Einstein (/ˈaɪnstaɪn/; 1879) and/or Ulm [ʊlm], his home", "Einstein (eighteen seventy-nine)"
     " and or Ulm, his home"),
    ("J. P. van der Berg in C♯, x ∈ A", "J P van der Berg in C sharp, x in ay"),
    # the rest
    ("2 x 400g tins, 2 x 4, 250 g salt", "two four hundred gram tins, two by four, two hundred"
     " fifty grams salt"),
    ("the 2nd ed. of acct. no. 0012", "the second edition of account number zero zero one two"),
    ("(212) 555-0199 x204", "two one two, five five five, zero one nine nine extension two zero"
     " four"),
    ("Airbus A380-800", "Airbus ay three eighty-eight hundred"),
    ("I ❤️ NY, a 5★ hotel", "I love NY, a five star hotel"),
    ("c u l8r m8, Gr8!", "c u later mate, Great!"),
    ("Winds NW at 5 mph", "Winds northwest at five miles per hour"),
    ("The M8 to London W8, a temp. He", "The M eight to London W eight, a temp. He"),
    ("A loud pop. 3 men ran, (pop. 300), temp. 20", "A loud pop. three men ran, (population three"
     " hundred), temperature twenty"),
    ("1 tbsp. oil, one tsp. of salt, 2 tbsp. in all", "one tablespoon oil, one teaspoon of salt,"
     " two tablespoons in all"),
    ("A CO-OP, EST. 1985, in DR Congo", "A CO-op, established nineteen eighty-five, in D R Congo"),
    ("The code is 5000 lines long, code 2019", "The code is five thousand lines long, code twenty"
     " nineteen"),
    ("cos θ/2 + sin θ/4, Oslo/Færder/Moss", "cos theta over two plus sin theta over four,"
     " Oslo Færder Moss"),
    ("A 27\" 5K screen in H.264", "A twenty-seven-inch five K screen in H two six four"),
]  # fmt: skip


@pytest.mark.parametrize("written, spoken", SENTENCES)
def test_everyday_texts_are_read_out(written, spoken):
    assert read_out(written) == spoken
    assert read_out(spoken) == spoken


def test_each_line_of_code_ends_for_itself():
    text = "Run:\n\n```bash\ngit clone it\ncd it\nmake {\n```\n\nDone."
    assert prepare(text, PHONEMES) == "Run:\n\ngit clone it. cd it. make {\n\nDone."
    assert prepare("One ```\ntwo\nthree", PHONEMES) == "One ''' two three"


@pytest.mark.parametrize("words, phonemes", [
    ("ET OT SEC PST", "IY1 T IY1 / OW1 T IY1 / EH1 S IY1 S IY1 / P IY1 EH1 S T IY1"),
    ("et psst", "EH1 T / P S T"),
    ("PCIe NVMe", "P IY1 S IY1 AY1 IY1 / EH1 N V IY1 EH1 M IY1"),
    ("GPs PAs OKs", "JH IY1 P IY1 Z / P IY1 EY1 Z / OW1 K EY1 Z"),
    ("OD'd I'd", "OW1 D IY1 D / AY1 D"),
    ("YAML CUDA JPEGs", "Y AE1 M AH0 L / K UW1 D AH0 / JH EY1 P EH2 G Z"),
    ("stdin ffmpeg", "S T AE1 N D ER0 D IH1 N / EH1 F EH1 F EH1 M P EH2 G"),
    ("thx ppl", "TH AE1 NG K S / P IY1 P AH0 L"),
    ("Ur", "ER1"),
    ("DR", "D R AY1 V"),
    ("IL AB SE Il", "AY1 EH1 L / EY1 B IY1 / EH1 S IY1 / IH1 L"),
    ("FTSE Qty arXiv", "F UH1 T S IY0 / K W AA1 N T AH0 T IY0 / AA1 R K AY2 V"),
])  # fmt: skip
def test_initials_and_names_of_programs_are_said_as_people_say_them(words, phonemes):
    assert " / ".join(" ".join(say_word(word)[0]) for word in words.split()) == phonemes


@pytest.mark.parametrize("text, said", [
    ("Conduct regular audits.", "K AH0 N D AH1 K T"),
    ("Conduct in class matters.", "K AA1 N D AH0 K T"),
    ("Address security concerns early.", "AH0 D R EH1 S"),
    ("Write your name and address on it.", "AE1 D R EH2 S"),
    ("Present relevant data.", "P R IY0 Z EH1 N T"),
    ("Present day Iraq.", "P R EH1 Z AH0 N T"),
    ("You can export it, or import contacts.", "IH2 M P AO1 R T"),
    ("As demand increases, prices rise.", "IH2 N K R IY1 S IH0 Z"),
    ("When using objects, free them.", "AA1 B JH EH0 K T S"),
    ("Students who read daily do well.", "R IY1 D"),
    ("Those who read it loved it.", "R EH1 D"),
    ("We live-streamed it.", "L AY1 V"),
    ("A study on lead in water.", "L EH1 D"),
    ("He took the lead in water polo.", "L IY1 D"),
    ("The road winds past it.", "W AY1 N D Z"),
    ("The nurse wound a bandage.", "W AW1 N D"),
    ("The wound a knife made", "W UW1 N D"),
    ("The war wound her father carried", "W UW1 N D"),
    ("When contracts, plans and bids arrive", "K AA1 N T R AE2 K T S"),
    ("Address unknown, it said.", "AE1 D R EH2 S"),
    ("The site is now live at the new address.", "L AY1 V"),
    ("I read that the bank would close.", "R EH1 D"),
    ("I read that coffee is good.", "R EH1 D"),
    ("I read that book every day.", "R IY1 D"),
    ("a bar where live bands play", "L AY1 V"),
    ("Elaborate on that.", "IH0 L AE1 B R EY2 T"),
    ("Lead exposure rose.", "L EH1 D"),
    ("The soldiers lead quiet lives.", "L IY1 D"),
    ("The nurse wound the bandage.", "W AW1 N D"),
    ("She reports live from Kyiv.", "L AY1 V"),
    ("Most reports live in the archive.", "L IH1 V"),
    ("The bass player went fishing.", "B EY1 S"),
    ("The fishing boat caught a bass.", "B AE1 S"),
])  # fmt: skip
def test_words_of_several_sounds_in_everyday_sentences(text, said):
    tokens = " ".join(PHONEMES.tokens(fit(prepare(text, PHONEMES), PHONEMES)[0]))
    assert said in tokens
