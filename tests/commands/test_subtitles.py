"""`speak --subtitles`: for a file, a stream and a batch, and refused before anything is spoken."""

import json

import pytest
import soundfile as sf

from nanospeech.generate import main

FAST = ["--steps", "2", "--cfg", "0", "--device", "cpu", "--quiet", "--seed", "1"]
TEXT = "At 9:30, Dr. Hall paid $5. He left."


def test_subtitles_are_written_beside_speech(tmp_path):
    wav, found = tmp_path / "a.wav", tmp_path / "a.json"
    where = ["--output", str(wav), "--subtitles", str(found)]
    for more in ([], ["--stream"]):
        assert main(["--text", TEXT, *FAST, *where, *more]) == 0
        words = json.loads(found.read_text())["words"]
        assert [word["text"] for word in words] == TEXT.split()
        assert 0 <= words[0]["start"] < words[-1]["end"] <= sf.info(wav).duration + 0.001
    lines = tmp_path / "lines.txt"
    lines.write_text("one|Hello there.\ntwo|Good bye.")
    flags = ["--output", str(tmp_path / "out"), "--subtitles", "srt", "--subtitle-words"]
    assert main(["--batch", str(lines), *FAST, *flags]) == 0
    blocks = (tmp_path / "out" / "two.srt").read_text().strip().split("\n\n")
    assert [block.split("\n")[2] for block in blocks] == ["Good", "bye."]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--text", "Hi.", "--subtitles", "a.txt"], ".srt, .vtt, .json"),
        (["--text", "Hi.", "--subtitles", "nowhere/a.srt"], "there is no folder nowhere"),
        (["--batch", "x", "--output", "y", "--subtitles", "a.srt"], "choose srt, vtt, json"),
    ],
)
def test_bad_subtitles_are_refused_at_once(flags, why, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*flags, "--model", "nowhere"]) == 2
    assert why in capsys.readouterr().err


def test_markup_and_ssml_reach_the_speech_and_its_subtitles(tmp_path):
    where = ["--output", str(tmp_path / "a.wav"), "--subtitles", str(tmp_path / "a.json")]
    marked = "Hello[pause 900ms] [voice: robin]Dr. Hall[/voice]."
    ssml = "<speak>Hello<break time='900ms'/> <voice name='robin'>Dr. Hall</voice>.</speak>"
    for text, *flag in ((marked,), (marked, "--markup"), (ssml, "--ssml")):
        assert main([text, *flag, *FAST, *where]) == 0
        words = json.loads((tmp_path / "a.json").read_text())["words"]
        assert [word["text"] for word in words] == ["Hello", "Dr.", "Hall."]
        assert words[1]["start"] - words[0]["end"] == pytest.approx(0.9, abs=0.1)


def test_lines_of_a_batch_may_have_markup(tmp_path, capsys):
    marked = "a|[pause 700ms]Hello [voice: robin]there[/voice].\nOne [say: two | T UW1].\nc|[slow]x"
    ssml = "a|<speak><break time='700ms'/>Hello <voice name='robin'>there</voice>.</speak>"
    for text, flag, code in ((marked, "--markup", 1), (ssml, "--ssml", 0)):
        (tmp_path / "lines.txt").write_text(text)
        out = tmp_path / flag
        where = ["--batch", str(tmp_path / "lines.txt"), "--output", str(out)]
        assert main([*where, flag, *FAST, "--subtitles", "json"]) == code
        words = json.loads((out / "a.json").read_text())["words"]
        assert [word["text"] for word in words] == ["Hello", "there."]
        assert words[0]["start"] == pytest.approx(0.7, abs=0.1)
    assert sorted(p.name for p in (tmp_path / "--markup").glob("*.wav")) == ["0002.wav", "a.wav"]
    assert "line 3: [slow] at line 1, column 1 is not closed" in capsys.readouterr().err
    with_both = ["--text", "Hi.", "--markup", "--ssml", "--model", "nowhere"]
    assert main(with_both) == 2 and "not both" in capsys.readouterr().err


def test_a_line_of_json_is_in_its_own_voice(tmp_path):
    lines = [
        {"text": "Hello. [voice: heart]Bye.[/voice]", "id": "json", "voice": "robin"},
        {"text": "Hello.", "id": "own"},
    ]
    objects = "\n".join(map(json.dumps, lines))
    brackets = "marked|[voice: robin]Hello. [voice: heart]Bye.[/voice][/voice]"
    (tmp_path / "lines.txt").write_text(f"{objects}\n{brackets}")
    where = ["--batch", str(tmp_path / "lines.txt"), "--output", str(tmp_path)]
    assert main([*where, *FAST]) == 0
    assert (tmp_path / "json.wav").read_bytes() == (tmp_path / "marked.wav").read_bytes()
    assert (tmp_path / "own.wav").stat().st_size < (tmp_path / "json.wav").stat().st_size


def test_files_of_a_batch_that_are_there_without_subtitles_are_told(tmp_path, capsys):
    (tmp_path / "lines.txt").write_text("a|Hello.\nb|Hi.")
    where = ["--batch", str(tmp_path / "lines.txt"), "--output", str(tmp_path / "out")]
    assert main([*where, *FAST]) == 0
    (tmp_path / "out" / "b.srt").write_text("")
    assert main([*where, *FAST, "--subtitles", "srt"]) == 1
    said = capsys.readouterr().err
    assert said == "line 1: a.wav is there without a.srt; --overwrite writes both anew\n"


def test_wrong_markup_is_refused_at_once(capsys):
    assert main(["--text", "Hi [pause x]", "--model", "nowhere"]) == 2
    assert "[pause x] at line 1, column 4" in (said := capsys.readouterr().err)
    assert "--no-markup" in said
    assert main(["Hi", "--text", "Hi", "--model", "nowhere"]) == 2
    assert "one text" in capsys.readouterr().err


def test_brackets_are_text_where_markup_is_not_wanted(tmp_path):
    for text, *flags in (("Hi [slow down].", "--no-markup"), ("Hi [sic] you.",)):
        where = ["--output", str(tmp_path / "a.wav"), "--subtitles", str(tmp_path / "a.json")]
        assert main([text, *flags, *FAST, *where]) == 0
        words = json.loads((tmp_path / "a.json").read_text())["words"]
        assert " ".join(word["text"] for word in words) == text
