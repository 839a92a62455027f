#!/bin/sh
# Adds a voice to a release folder, as the built-in voices of the default model were made.
#
#   sh scripts/recipes/voice.sh SHARDS FOLDER NAME
#
# SHARDS  recordings with their texts, in any layout that nanospeech prepare reads
# FOLDER  release folder that gets the voice; its other voices stay as they are
# NAME    of the voice
#
# curate (listen, drop, take hiss out), prompt, finetune adapters, add, measure its pace. The model
# keeps its weights; voices/NAME.safetensors has what the voice changes, and voices/NAME.json how
# fast it speaks. The same command goes on where it stopped. Needs the extra eval.
#
# BASE=folder      to finetune from (default FOLDER)
# FROM=name        start from the weights of this voice of BASE, for a second round of training; BASE
#                  should then be a copy of FOLDER, as more STEPS later start from the same weights
#                  (default none: the model's own)
# SPEAKER=name     take only these clips (default NAME, as clips without a speaker are called; ''
#                  takes all)
# DENOISE=0.7      remove that share of steady hiss first (needs noisereduce; default 0: none)
# REHEARSE="tars"  recordings to mix in, of what the model knows: for a voice of few minutes
# STEPS=1500       of 3,000 mel frames each
# STRENGTH=1       less keeps more of the model's clear words, and less of the voice
# RANK=24          of the adapters            MEGABYTES=2.5  of the voice's file
# WHISPER=base     faster-whisper size or folder that transcribes clips; LISTEN=0: none
# DNSMOS=1         choose the prompt by its sound too (needs speechmos)
# RUNS=folder      of data and checkpoints (default runs/NAME)
set -eu
[ $# -eq 3 ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2; }
shards=$1 folder=$2 name=$3
here=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python}
runs=${RUNS:-runs/$name} speaker=${SPEAKER-$name} steps=${STEPS:-1500} rank=${RANK:-24}
cores=$(env -u OMP_NUM_THREADS nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
threads=${OMP_NUM_THREADS:-$cores}
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
run_stage() { "$python" -m scripts.recipes.run_stage "$runs/record.json" "$@"; }
# attention, feed-forward, modulation, the text's blocks and both ends: all that is a large matrix
targets=to_q,to_k,to_v,to_out.0,ff.ff.0.0,ff.ff.2,attn_norm.linear,pwconv1,pwconv2
targets=$targets,input_embed.proj,proj_out
listen="--whisper ${WHISPER:-base}"
[ "${LISTEN:-1}" != 0 ] || listen=''
denoise="--denoise ${DENOISE:-0}"
[ "${DENOISE:-0}" != 0 ] || denoise=''

# shellcheck disable=SC2086
run_stage curate --makes "$runs/data/curate.json" -- \
  "$python" -m nanospeech prepare curate "$shards" --out "$runs/data" --overwrite --max-seconds 20 \
  --jobs "$threads" $listen $denoise --speaker "$name" ${speaker:+--speakers "$speaker"}
run_stage prompt --needs curate --makes "$runs/prompt" \
  --clean "$runs/prompt" "$runs/model" -- \
  "$python" -m nanospeech prepare prompts "$runs/data/heldout" "$runs/data/train" \
  --out "$runs/prompt" ${DNSMOS:+--dnsmos}
prompt=$(ls "$runs/prompt/"*.flac)
# shellcheck disable=SC2086
run_stage finetune --extends --needs curate --makes "$runs/model/config.json" \
  --aside "$runs/finetune" -- \
  "$python" -m nanospeech finetune --data "$runs/data/train" --voice "$name" \
  --model "${BASE:-$folder}" --from-voice "${FROM:-none}" --output "$runs/model" \
  --run "$runs/finetune" --prompt "$prompt" \
  --held-back 0 --lora "$rank" --targets "$targets" --thin --lr 2e-3 --steps "$steps" \
  --strength "${STRENGTH:-1}" --max-seconds 20 \
  --batch-size 64 --batch-frames 3000 --threads "$threads" ${REHEARSE:+--rehearse $REHEARSE}
"$python" -m nanospeech publish voice "$runs/model" "$folder" --voice "$name" \
  --megabytes "${MEGABYTES:-2.5}" --overwrite
"$python" -m nanospeech evaluate durations --model "$folder" --backend torch \
  --shards "$runs/data/train/*.tar" --held-out 0 --own "*=$name" --set-pace --out "$runs/pace"
run_stage --table
