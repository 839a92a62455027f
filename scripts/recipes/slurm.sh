#!/usr/bin/env bash
# Trains on all nodes of a SLURM job: one torchrun a node, one process a GPU.
#
#   sbatch --nodes 4 --gpus-per-node 8 scripts/recipes/slurm.sh --config nanospeech/configs/800M.yaml \
#     --set parallel.shard=8
#
# What follows the script's name goes to nanospeech train. Submit from the clone's folder. Two
# minutes before the time limit the run saves, ends and is put into the queue again, where it goes
# on, also where the command has --resume never or a path: these are for the first start. scancel
# and preemption save too, within the cluster's KillWait.
#
# PYTHON=python of your environment (default: python)
# PROCESSES=processes a node (default: gpu, one for each)
# MASTER_PORT=port of the first node (default: from the job's number)
#SBATCH --job-name=nanospeech
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
#SBATCH --signal=B:USR1@120
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-.}"
[ $# -gt 0 ] || { sed -n '2,14p' "$0"; exit 2; }

NODES=${SLURM_JOB_NUM_NODES:-${SLURM_NNODES:-1}}
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
MASTER_PORT=${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 20000))}
export NODES MASTER_ADDR MASTER_PORT PYTHON="${PYTHON:-python}" PROCESSES="${PROCESSES:-gpu}"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

# torchrun itself would kill a run 30 s after a signal, saved or not: here it sees none, and the
# trainers, its children, get theirs from the node's shell
# shellcheck disable=SC2016  # the node's shell is to read these variables
node='
(
  trap "" TERM USR1
  exec "$PYTHON" -m torch.distributed.run --nnodes "$NODES" --node_rank "$SLURM_NODEID" \
    --nproc_per_node "$PROCESSES" --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" \
    --signals_to_handle SIGINT -m nanospeech.train "$@"
) &
launcher=$!
trap "pkill -TERM -P $launcher || true" TERM USR1
while kill -0 "$launcher" 2>/dev/null; do wait "$launcher"; done
wait "$launcher"
'

out_of_time=
trap 'out_of_time=1; scancel --signal=USR1 "$SLURM_JOB_ID"' USR1  # to the nodes, not to this shell
trap : TERM                                                      # the nodes have had it from SLURM
srun --nodes="$NODES" --ntasks="$NODES" --ntasks-per-node=1 --kill-on-bad-exit=1 \
  bash -c "$node" node "$@" &
step=$!
while kill -0 "$step" 2>/dev/null; do wait "$step" || true; done
code=0
wait "$step" || code=$?
if [ -n "$out_of_time" ] && [ "$code" = 0 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
