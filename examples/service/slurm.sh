#!/bin/bash
# The data service on Slurm: workers on one group of nodes, the trainer on another.
#
#   sbatch slurm.sh train.py
#
# The folder in which it is submitted is on a file system that all nodes mount, and .venv in it has tundish.
#SBATCH --job-name=train
#SBATCH --nodes=1 --ntasks-per-node=1 --cpus-per-task=8 --gpus-per-node=1
#SBATCH hetjob
#SBATCH --nodes=4 --ntasks-per-node=1 --cpus-per-task=32
set -euo pipefail
source .venv/bin/activate

# A token of this job's own, which only this user can read.
folder=$PWD/.service-$SLURM_JOB_ID
mkdir -m 700 "$folder"
trap 'rm -rf "$folder"' EXIT
(umask 077 && python -c 'import secrets; print(secrets.token_hex())' > "$folder/token")
export TUNDISH_SERVICE_TOKEN_FILE=$folder/token

# The dispatcher runs where this script does: on the first node of the trainer's group. It draws a free port and says which.
tundish service dispatcher --host "$(hostname)" --port 0 --work-dir "$folder" > "$folder/dispatcher.log" 2>&1 &
dispatcher=$!
until SERVICE=$(grep --only-matching --max-count=1 'tcp://.*' "$folder/dispatcher.log"); do
    kill -0 "$dispatcher" # it has ended: so does this script
    sleep 0.2
done
export SERVICE

# One worker a node; it offers as many seats as it has cores.
srun --het-group=1 --kill-on-bad-exit=0 bash -c \
    'exec tundish service worker --dispatcher "${SERVICE#tcp://}" --host "$(hostname)" --address "$(hostname)" --name "$(hostname)"' &

# The trainer distributes its dataset to $SERVICE; when it ends, so does everything.
srun --het-group=0 python "${1:-train.py}"
