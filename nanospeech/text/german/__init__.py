"""German: numbers, dates, amounts and abbreviations as they are spoken; german.py runs the rules.

Numbers in words are num2words' (extra [languages]).
"""
