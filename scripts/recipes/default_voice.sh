#!/bin/sh
# From shards of several speakers to a release folder with their voices: the default model's recipe.
#
#   sh scripts/recipes/default_voice.sh SHARDS OUTPUT [MINUTES]
#
# SHARDS   folder of WebDataset shards, or another layout that nanospeech prepare reads
# OUTPUT   release folder to write, for example my_voice
# MINUTES  of training for the speech model; the vocoder gets half (default 90)
#
# curate (hold out, listen, drop), prompts, vocoder, duration model, speech model, convert, evaluate,
# card, speak. Everything but the release goes to RUNS. The same command again goes on where it
# stopped; a larger MINUTES trains on. RUNS/record.json has times and hardware, for the model card.
#
# On a CUDA GPU the same command trains there, on all of them, with the batches of GPU below. Data
# are read by `workers` processes a GPU: set SET="data.workers=8" to the cores that there are. Half
# an hour of one GPU is much more than 90 minutes of two CPU cores: MINUTES=30 is a lot there.
#
# RUNS=folder       of data, checkpoints and logs (default runs/NAME of OUTPUT)
# SPEAKERS="a b"    take only these; clips without a speaker are of one called voice
# HOURS=n           at most, of each speaker
# VARY=0.1          train on a copy of each clip too, so much slower or faster, as another speaker
#                   (the default; 0: none), for there are few
# LISTEN=0          do not drop clips that Whisper mishears (transcribing takes a while)
# WHISPER=base      faster-whisper size or folder
# VOCODER=folder    use this one instead of training one; its sources go into VOCODER_SOURCES="a b"
# VOCODER_DATA=dir  train the vocoder on these shards too (texts do not matter)
# VOICE=name        the default voice   CARD=file  Markdown for the model card
# SET="a=b c=d"     changes to nanospeech/configs/default_voice.yaml; VOCODER_SET: to vocoder.yaml;
#                   DURATION_SET: to duration_small.yaml
# DURATION=0        train no duration model (it takes 16 minutes of a CPU core)
# DNSMOS=1          choose prompts by their sound too (needs speechmos)
# GPU="a=b"         the same, on a GPU only (default: ten times the batch)
# EVALUATE="..."    further flags of nanospeech/evaluate/__main__.py, which measures every voice
# PROCESSES=n       that train on the CPU (default 2 where there are two cores)
set -eu
[ $# -ge 2 ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2; }
shards=$1 output=$2 minutes=${3:-90}
here=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python}
runs=${RUNS:-runs/$(basename "$output")} whisper=${WHISPER:-base}
cores=$(env -u OMP_NUM_THREADS nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
if "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  gpu=${GPU:-data.max_batch_frames=30000 data.batch_size=512 data.workers=4}
  gpu_vocoder="data.batch_size=64 data.workers=4"
  threads=$cores launch="$python -m accelerate.commands.launch"
else
  gpu='' gpu_vocoder='' processes=${PROCESSES:-$((cores > 1 ? 2 : 1))}
  threads=$((cores > processes ? cores / processes : 1)) launch=$python
  [ "$processes" = 1 ] ||
    launch="$python -m torch.distributed.run --standalone --nproc_per_node $processes"
fi
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS="$threads"
run_stage() { "$python" -m scripts.recipes.run_stage "$runs/record.json" "$@"; }
# compiled blocks train 1.3 times as fast, after two minutes; inductor wants a C++ compiler
compile=$(command -v "${CXX:-g++}" >/dev/null && echo speed.compile=default || :)
listen="--whisper $whisper"
[ "${LISTEN:-1}" != 0 ] || listen=''
vary="--vary ${VARY:-0.1}"
[ "${VARY:-0.1}" != 0 ] || vary=''

# shellcheck disable=SC2086
run_stage curate --makes "$runs/data/curate.json" -- \
  "$python" -m nanospeech prepare curate "$shards" --out "$runs/data" --overwrite --max-seconds 20 \
  --speaker voice --jobs "$cores" $listen $vary ${SPEAKERS:+--speakers $SPEAKERS} \
  ${HOURS:+--max-hours "$HOURS"}
run_stage levels --needs curate --makes "$runs/levels.txt" -- \
  "$python" -m nanospeech prepare levels "$runs/data/train" --out "$runs/levels.txt"
run_stage prompts --needs curate --makes "$runs/voices" --clean "$runs/voices" -- \
  "$python" -m nanospeech prepare prompts "$runs/data/heldout" "$runs/data/train" \
  --out "$runs/voices" ${DNSMOS:+--dnsmos}

# shellcheck disable=SC2086
if [ -n "${VOCODER:-}" ]; then
  vocoder=$VOCODER vocoder_data=''
else
  vocoder=$runs/vocoder vocoder_data=$runs/data/curate.json
  run_stage vocoder --extends --needs curate --makes "$runs/vocoder/latest" --aside "$runs/vocoder" -- \
    $launch -m nanospeech.train --config "$here/nanospeech/configs/vocoder.yaml" \
    --threads "$threads" --set run_dir="$runs/vocoder" total_steps=1000000 \
    train.minutes="$(((minutes + 1) / 2))" $gpu_vocoder ${VOCODER_SET:-} \
    data.shards="[\"$runs/data/train/*.tar\"${VOCODER_DATA:+, \"$VOCODER_DATA/*.tar\"}]"
fi
durations=''
if [ "${DURATION:-1}" != 0 ]; then
  durations=$runs/durations
  # shellcheck disable=SC2046,SC2086
  run_stage durations --extends --needs levels --makes "$runs/durations/latest" \
    --aside "$runs/durations" -- \
    "$python" -m nanospeech train --config "$here/nanospeech/configs/duration_small.yaml" \
    --threads "$threads" --set run_dir="$runs/durations" \
    data.shards="[\"$runs/data/train/*.tar\"]" \
    $(cat "$runs/levels.txt") ${DURATION_SET:-}
fi
# the losses of clips that are held out, if any are, go into log.csv too
heldout=''
set -- "$runs/data/heldout/"*.tar
[ ! -e "$1" ] || heldout="log.held_out=[\"$runs/data/heldout/*.tar\"]"
# shellcheck disable=SC2046,SC2086
run_stage speech --extends --needs levels --makes "$runs/speech/latest" --aside "$runs/speech" -- \
  $launch -m nanospeech.train --config "$here/nanospeech/configs/default_voice.yaml" \
  --threads "$threads" --set data.shards="[\"$runs/data/train/*.tar\"]" run_dir="$runs/speech" \
  total_steps=1000000 train.minutes="$minutes" $(cat "$runs/levels.txt") $compile $gpu \
  ${heldout:+"$heldout"} ${SET:-}
run_stage curve --needs speech --makes "$runs/curve.png" -- \
  "$python" -m nanospeech evaluate curve --log "$runs/speech/log.csv" --out "$runs/curve.png"

# shellcheck disable=SC2086
run_stage convert --needs speech prompts vocoder durations --makes "$output/config.json" -- \
  "$python" -m convert "$runs/speech" --output "$output" --voices "$runs/voices" \
  --vocoder "$vocoder" ${durations:+--duration "$durations"} --name "$(basename "$output")" \
  --temperature 0.4 --smooth 0.25 --sharpen 0.5 --no-imitates ${VOICE:+--default-voice "$VOICE"}
# shellcheck disable=SC2086
run_stage evaluate --needs convert --makes "$runs/evaluation/summary.json" \
  --clean "$runs/evaluation" -- \
  "$python" -m nanospeech evaluate "$output" --out "$runs/evaluation" --whisper "$whisper" \
  --voice "$(cd "$runs/voices" && ls ./*.flac | sed 's|^./||; s|.flac$||' | paste -sd , -)" \
  ${EVALUATE:-}
# shellcheck disable=SC2086
run_stage card --needs evaluate convert --makes "$output/README.md" -- \
  "$python" -m nanospeech publish card "$output" --data "$runs/data/curate.json" \
  --record "$runs/record.json" --run "$runs/speech" --evaluation "$runs/evaluation" \
  ${vocoder_data:+--vocoder-data "$vocoder_data"} \
  ${VOCODER_SOURCES:+--vocoder-sources $VOCODER_SOURCES} \
  --notes "${CARD:-$here/scripts/recipes/default_voice.md}"
run_stage speak --needs convert --makes "$runs/sample.mp3" -- \
  "$python" -m nanospeech.generate --model "$output" --output "$runs/sample.mp3" \
  --text "This voice was trained from scratch."

echo
run_stage --table
echo
cat "$runs/evaluation/summary.md"
echo "the release: $output   what it says: $runs/sample.mp3   the log: $runs/record.log"
