"""Units: of measures and of money, their words, and their plurals."""

from __future__ import annotations

import re

from . import words

SAME = {"yen", "won", "percent", "hertz", "celsius", "sen", "dozen"}  # plurals like their singulars
PART = re.compile(" (?:per|of) ")
IRREGULAR = {"foot": "feet", "penny": "pence", "inch": "inches", "lux": "lux"}
LENGTHS = {"km": "kilometer", "m": "meter", "cm": "centimeter", "mm": "millimeter"}
LENGTHS |= {
    "ft": "foot",
    "yd": "yard",
    "yds": "yard",
    "mi": "mile",
    "in.": "inch",
    "nm": "nanometer",
}
LENGTHS |= {"µm": "micrometer", "μm": "micrometer"}
UNITS = LENGTHS | {"kg": "kilogram", "g": "gram", "mg": "milligram", "µg": "microgram"}
UNITS |= {"lb": "pound", "lbs": "pound", "oz": "ounce", "L": "liter", "l": "liter"}
UNITS |= {"ml": "milliliter", "mL": "milliliter", "cl": "centiliter", "gal": "gallon"}
UNITS |= {"mph": "mile per hour", "kph": "kilometer per hour", "kmh": "kilometer per hour"}
UNITS |= {"km/h": "kilometer per hour", "m/s": "meter per second", "mpg": "mile per gallon"}
UNITS |= {"Hz": "hertz", "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz"}
UNITS |= {"kB": "kilobyte", "KB": "kilobyte", "MB": "megabyte", "GB": "gigabyte", "TB": "terabyte"}
UNITS |= {"PB": "petabyte", "Mbps": "megabit per second", "Gbps": "gigabit per second"}
UNITS |= {"kbps": "kilobit per second", "bps": "bit per second", "fps": "frame per second"}
UNITS |= {"V": "volt", "kV": "kilovolt", "W": "watt", "kW": "kilowatt", "MW": "megawatt"}
UNITS |= {"GW": "gigawatt", "kWh": "kilowatt hour", "MWh": "megawatt hour", "mA": "milliamp"}
UNITS |= {"mAh": "milliamp hour", "Pa": "pascal", "hPa": "hectopascal", "kPa": "kilopascal"}
UNITS |= {
    "psi": "pound per square inch",
    "hp": "horsepower",
    "kcal": "kilocalorie",
    "cal": "calorie",
}
UNITS |= {
    "kJ": "kilojoule",
    "dB": "decibel",
    "px": "pixel",
    "ha": "hectare",
    "cc": "cubic centimeter",
}
UNITS |= {"rpm": "revolution per minute", "bpm": "beat per minute", "ppm": "part per million"}
UNITS |= {"ms": "millisecond", "sec": "second", "secs": "second", "min": "minute", "mins": "minute"}
UNITS |= {"h": "hour", "hr": "hour", "hrs": "hour", "yr": "year", "yrs": "year", "mo": "month"}
UNITS |= {"sq ft": "square foot", "sq. ft.": "square foot", "sq km": "square kilometer"}
UNITS |= {"sq mi": "square mile", "sq m": "square meter", "Ω": "ohm", "MP": "megapixel"}
UNITS |= {"pts": "point", "Gt": "gigaton", "bbl": "barrel"}
UNITS |= {"tsp": "teaspoon", "Tsp": "teaspoon", "c.": "cup", "doz": "dozen", "mcg": "microgram"}
UNITS |= {k: "tablespoon" for k in ("tbsp", "Tbsp", "tbs", "Tbs")}
UNITS |= {"pt": "pint", "qt": "quart", "sqft": "square foot", "sqm": "square meter"}
UNITS |= {"°C": "degree Celsius", "°F": "degree Fahrenheit", "°": "degree"}
UNITS |= {f"{k}^2": f"square {v}" for k, v in LENGTHS.items()}
UNITS |= {f"{k}^3": f"cubic {v}" for k, v in LENGTHS.items()}
UNITS |= {"km2": "square kilometer", "m2": "square meter", "m3": "cubic meter"}
SAME |= {"horsepower", "pence", "lux"}
UNITS |= {"Ft": "foot", "kgs": "kilogram", "kms": "kilometer", "Nm": "newton meter"}
UNITS |= {"µL": "microliter", "µl": "microliter", "µs": "microsecond", "µA": "microamp"}
UNITS |= {"wk": "week", "wks": "week", "mos": "month", "mmHg": "millimeter of mercury"}
UNITS |= {"m/s^2": "meter per second squared", "dpi": "dot per inch", "ppi": "pixel per inch"}
UNITS |= {"kN": "kilonewton", "Wh": "watt hour", "Ah": "amp hour", "GWh": "gigawatt hour"}
UNITS |= {"TWh": "terawatt hour", "MJ": "megajoule", "fl oz": "fluid ounce", "hz": "hertz"}
UNITS |= {"fl. oz.": "fluid ounce", "cu ft": "cubic foot", "cu. ft.": "cubic foot"}
UNITS |= {"sq. m": "square meter", "sq. km": "square kilometer", "sq. mi.": "square mile"}
UNITS |= {"sq yd": "square yard", "sq in": "square inch", "°c": UNITS["°C"], "°f": UNITS["°F"]}
UNITS |= {"cu. in.": "cubic inch", "cu in": "cubic inch", "cu. yd.": "cubic yard"}
UNITS |= {f"{k}F": f"{v}farad" for k, v in (("µ", "micro"), ("n", "nano"), ("p", "pico"))}
UNITS |= {"mol": "mole", "mmol": "millimole", "µmol": "micromole", "nmol": "nanomole"}
UNITS |= {"bp": "base pair", "mM": "millimolar", "µM": "micromolar", "nM": "nanomolar"}
UNITS |= {"kDa": "kilodalton", "kt": "knot", "kts": "knot", "pct": "percent"}
SAME |= {"millimolar", "micromolar", "nanomolar"}
# of computers, in the letters that people write
for _short, _long in {"k": "kilo", "m": "mega", "g": "giga", "t": "tera"}.items():
    UNITS |= {f"{_short}b": f"{_long}byte", f"{_short}bps": f"{_long}bit per second"}
    UNITS |= {f"{k}bit": f"{_long}bit" for k in (_short, _short.upper())}
    UNITS |= {f"{_short.upper()}iB": f"{_long[:2]}bibyte", f"{_short}hz": f"{_long}hertz"}
    UNITS |= {f"{_short}w": f"{_long}watt", f"{_short}wh": f"{_long}watt hour"}
PER = {"hr": "hour", "h": "hour", "s": "second", "sec": "second", "min": "minute", "yr": "year"}
PER |= {"oz": "ounce", "ft": "foot", "wk": "week", "ton": "ton"}
PER |= {"kg": "kilogram", "g": "gram", "L": "liter", "l": "liter", "km": "kilometer", "m": "meter"}
PER |= {
    "lb": "pound",
    "bbl": "barrel",
    "gal": "gallon",
    "dL": "deciliter",
    "ml": "milliliter",
    "mo": "month",
}
PER |= {k: UNITS[k] for k in words("kWh MWh GB MB TB")}
PER |= {k: UNITS[k] for k in ("sq ft", "sq. ft.", "sqft", "sq m", "sqm")}
PER |= {"mol": "mole", "dl": "deciliter", "mL": "milliliter"}
PER |= {f"{k}{p}": f"square {LENGTHS[k]}" for k in words("km m cm mm ft mi") for p in ("^2", "2")}
PER |= {f"{k}^3": f"cubic {LENGTHS[k]}" for k in words("m cm mm ft")}
TIMES = words("second minute hour day night week month year person mile pound gallon")
PER |= {w: w for w in TIMES}


def plural(count: str, noun: str) -> str:
    """A unit after its number: ("2", "mile per hour") -> "miles per hour"."""
    if count == "1":
        return noun
    link = PART.search(noun)
    head, rest = (noun[: link.start()], noun[link.start() :]) if link else (noun, "")
    before, space, last = head.rpartition(" ")
    if last in ("Celsius", "Fahrenheit"):
        return plural(count, before) + space + last
    many = last if last in SAME or last.endswith("hertz") else IRREGULAR.get(last, last + "s")
    return before + space + many + rest
