#!/bin/sh
# Trains the default voice: shards of recordings in, release folder out. One command, which goes on
# where it stopped when it is run again.
#
#   sh scripts/default_voice.sh SHARDS OUTPUT [MINUTES]
#
# SHARDS   folder of WebDataset shards (scripts/prepare.py makes them) of one clean voice
# OUTPUT   release folder to write, for example my_voice
# MINUTES  of training for the speech model; the vocoder gets half (default 90)
#
# VOICE=name of the voice whose prompt is in $VOICES (default: nanospeech/default/voices)
# THREADS=CPU threads (default 2)   RUNS=folder for checkpoints (default runs)
set -eu
[ $# -ge 2 ] || { sed -n '2,14p' "$0"; exit 2; }
shards=$1 output=$2 minutes=${3:-90}
here=$(cd "$(dirname "$0")/.." && pwd)
runs=${RUNS:-runs} threads=${THREADS:-2}
export OMP_NUM_THREADS="$threads" PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
python=${PYTHON:-python}

"$python" "$here/scripts/train.py" --config "$here/scripts/configs/default_voice.yaml" \
  --set data.shards="$shards/*.tar" run_dir="$runs/default_voice" \
  --threads "$threads" --minutes "$minutes"
"$python" "$here/scripts/train.py" --config "$here/scripts/configs/vocoder.yaml" \
  --set data.shards="$shards/*.tar" run_dir="$runs/vocoder" \
  --threads "$threads" --minutes $((minutes / 2))
"$python" "$here/scripts/train_vocoder.py" --run "$runs/vocoder" --export "$runs/vocoder/release"
"$python" -m convert "$(ls "$runs"/default_voice/step_*.pt | tail -1)" --output "$output" \
  --vocoder "$runs/vocoder/release" --voices "${VOICES:-$here/nanospeech/default/voices}" \
  --default-voice "${VOICE:-kumo}" --card "$here/scripts/default_voice.md"
"$python" -m nanospeech.generate --model "$output" --text "This voice was trained from scratch." \
  --output "$output/sample.wav"
