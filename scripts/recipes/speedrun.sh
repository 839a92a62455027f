#!/bin/sh
# From a folder of recordings with texts to a voice that speaks: an hour on two CPU cores.
#
#   sh scripts/recipes/speedrun.sh RECORDINGS OUTPUT [MINUTES]
#
# RECORDINGS  in any layout that nanospeech prepare reads: LJ Speech, LibriTTS, a CSV, or shards;
#             an hour or more of one clean voice
# OUTPUT      folder for everything; the voice is OUTPUT/model
# MINUTES     of training (default 46, which leaves 14 for the rest)
#
# prepare (levels, trims and packs the clips, holds some out), train, convert, evaluate, speak. The
# speech model starts from nothing. The vocoder, which turns mels into sound, is the one that ships
# with the package: it was trained before, on several voices. The same command again goes on where
# it stopped. OUTPUT/record.log is the log, record.json has times and hardware, curve.png the loss,
# evaluation/ the figures, samples/ what it says.
#
# SPEAKERS="a b"  take only these            VOICE=name  of clips without a speaker (default voice)
# LISTEN=1        drop clips that Whisper does not understand (takes a third of the clips' length)
# WHISPER=base    faster-whisper size or folder, for LISTEN and the evaluation
# SET="a=b c=d"   changes to nanospeech/configs/speedrun.yaml
# EVALUATE="..."  further flags of nanospeech/evaluate/__main__.py
# PROCESSES=n     that train (default 2 where there are two cores, 1 on a GPU)
set -eu
[ $# -ge 2 ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2; }
recordings=$1 out=$2 minutes=${3:-46}
here=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python}
whisper=${WHISPER:-base} voice=${VOICE:-voice}
cores=$(env -u OMP_NUM_THREADS nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
processes=${PROCESSES:-}
if [ -z "$processes" ]; then
  gpu='import sys, torch; sys.exit(not torch.cuda.is_available())'
  processes=$("$python" -c "$gpu" || [ "$cores" = 1 ] && echo 1 || echo 2)
fi
threads=$((cores > processes ? cores / processes : 1))
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS="$threads"
run_stage() { "$python" -m scripts.recipes.run_stage "$out/record.json" "$@"; }
# compiled blocks train 1.3 times as fast, after two minutes; inductor needs a C++ compiler
compile=$(command -v "${CXX:-g++}" >/dev/null && echo speed.compile=default || :)
train=$python
[ "$processes" = 1 ] ||
  train="$python -m torch.distributed.run --standalone --nproc_per_node $processes"

run_stage prepare --makes "$out/data/curate.json" -- \
  "$python" -m nanospeech prepare curate "$recordings" --out "$out/data" --overwrite \
  --level 0.068 --max-seconds 10 --speaker "$voice" --jobs "$cores" \
  ${SPEAKERS:+--speakers $SPEAKERS} ${LISTEN:+--whisper "$whisper"}
run_stage levels --needs prepare --makes "$out/levels.txt" -- \
  "$python" -m nanospeech prepare levels "$out/data/train" --out "$out/levels.txt"
run_stage prompt --needs prepare --makes "$out/voices" --clean "$out/voices" -- \
  "$python" -m nanospeech prepare prompts "$out/data/heldout" "$out/data/train" --out "$out/voices" \
  --speaker "$voice"
# shellcheck disable=SC2046,SC2086
run_stage train --extends --needs levels --makes "$out/run/latest" --aside "$out/run" -- \
  $train -m nanospeech.train --config "$here/nanospeech/configs/speedrun.yaml" \
  --threads "$threads" --set data.shards="[\"$out/data/train/*.tar\"]" run_dir="$out/run" \
  train.minutes="$minutes" $(cat "$out/levels.txt") $compile ${SET:-}
run_stage curve --needs train --makes "$out/curve.png" -- \
  "$python" -m nanospeech evaluate curve --log "$out/run/log.csv" --out "$out/curve.png"
run_stage convert --needs train prompt --makes "$out/model/config.json" --clean "$out/model" -- \
  "$python" -m convert "$out/run" --output "$out/model" --voices "$out/voices" \
  --vocoder "${VOCODER:-$here/nanospeech/default}" --name "$(basename "$out")" --temperature 0.4 \
  --sharpen 0.4 --no-imitates
# shellcheck disable=SC2086
run_stage evaluate --needs convert --makes "$out/evaluation/summary.json" --clean "$out/evaluation" -- \
  "$python" -m nanospeech evaluate "$out/model" --out "$out/evaluation" \
  --whisper "$whisper" ${EVALUATE:-}
mkdir -p "$out/samples"
run_stage speak --needs convert --makes "$out/samples/hello.mp3" -- \
  "$python" -m nanospeech.generate --model "$out/model" --output "$out/samples/hello.mp3" \
  --text "Hello! I learned to speak from nothing, on this machine."
# shellcheck disable=SC2046
run_stage card --needs evaluate --makes "$out/model/README.md" -- \
  "$python" -m nanospeech publish card "$out/model" --data "$out/data/curate.json" \
  --record "$out/record.json" --run "$out/run" --evaluation "$out/evaluation" \
  $([ -n "${VOCODER:-}" ] || echo --vocoder-sources kokoro-82m kathleen callie asp)

echo
run_stage --table
echo
cat "$out/evaluation/summary.md"
echo "the voice: $out/model   what it says: $out/samples/hello.mp3   the log: $out/record.log"
