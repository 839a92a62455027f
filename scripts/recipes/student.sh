#!/bin/sh
# From a model with voices to the same with a student that speaks for it, three times as fast.
#
#   sh scripts/recipes/student.sh TEACHER TEXTS OUTPUT MINUTES
#
# TEACHER  release folder with voices, for example nanospeech/default; or one that imitates
# TEXTS    file with a sentence in each line; some thousands
# OUTPUT   release folder to write, for example runs/student/release
# MINUTES  of training; a larger number trains on
#
# spoken, train, convert. The same command goes on where it stopped. No recordings are needed but
# for a teacher that imitates.
#
# RECORDINGS="a b"  that it speaks after, as `nanospeech prepare shards` reads them: the student
#                   then speaks after any recording
# CLIPS=900         that the teacher speaks to learn from, of all its voices
# EXCLUDE="a b"     files of sentences that are never learnt, as those that it is measured on
# SET="a=b c=d"     changes to nanospeech/configs/distill.yaml; THREADS=n of training
# RUNS=folder       of data, checkpoints and logs (default runs/student)
set -eu
[ $# -eq 4 ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2; }
teacher=$1 texts=$2 output=$3 minutes=$4
here=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python} runs=${RUNS:-runs/student}
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
run_stage() { "$python" -m scripts.recipes.run_stage "$runs/record.json" "$@"; }
voice=distill.voice=all
[ -z "${RECORDINGS:-}" ] || voice=distill.voice=null
mkdir -p "$runs"

# shellcheck disable=SC2086
run_stage spoken --makes "$runs/spoken/spoken-000000.tar" --clean "$runs/spoken" -- \
  "$python" -m nanospeech prepare spoken "$teacher" "$texts" --out "$runs/spoken" \
  --clips "${CLIPS:-900}" ${EXCLUDE:+--exclude $EXCLUDE} ${RECORDINGS:+--recordings $RECORDINGS}
# shellcheck disable=SC2086
run_stage student --extends --needs spoken --makes "$runs/run/latest" --aside "$runs/run" -- \
  "$python" -m nanospeech train distill --threads "${THREADS:-2}" --set teacher="$teacher" \
  "$voice" loss.pair=1.0 data.shards="[\"$runs/spoken/*.tar\"]" run_dir="$runs/run" \
  total_steps=100000 train.minutes="$minutes" ${SET:-}
run_stage convert --needs student --makes "$output/config.json" -- \
  "$python" -m convert "$teacher" --student "$runs/run" --output "$output"
echo "the release: $output"
