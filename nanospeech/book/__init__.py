"""Books: a file's chapters to speech, kept piece by piece, and bound with marks and a cover.

pages.py is what a book is; opening.py, epub.py and plain.py read files; narrate.py speaks, and
writers.py bind.
"""
