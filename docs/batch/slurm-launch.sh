#!/bin/bash
# `skt-hpl launch` in a Slurm job: 8 nodes and one spare, 8 ranks of 8 threads on each. It
# continues by itself after the loss of a node.
#
#   sbatch slurm-launch.sh
#
# The job outlives the loss of a node (--no-kill); the nodes that the grid does not need are
# the spares.
#SBATCH --job-name=hpl
#SBATCH --nodes=9
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --hint=nomultithread
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=12:00:00
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --open-mode=append

# Two such jobs at a time need a folder each, else one continues the other: set IMAGES.
# `skt-hpl status --state images/launch` shows how far the job is.
images=${IMAGES:-$SLURM_SUBMIT_DIR/images}
mkdir -p "$images"
touch "$images/begun"
# A configuration without checkpoints, which `plan` may choose, has no images: set LEVEL to nothing.
# The end of this script looks for images in IMAGES, so another level's folder belongs there.
level=${LEVEL-global:$images}
# Slurm before 23.02 does not tell a job its end, but its queue does.
end=${SLURM_JOB_END_TIME:+@$SLURM_JOB_END_TIME}
end=${end:-$(SLURM_TIME_FORMAT=standard squeue -h -j "$SLURM_JOB_ID" -o %e)}
end=$(date -d "${end:-the end that squeue does not tell}" +%s) || exit 2

# The first host of a job that Slurm has queued again may be another one: the launcher there is gone.
skt-hpl launch ${SLURM_RESTART_COUNT:+--head-lost} --state "$images/launch" --json launch.json -- \
    --config cluster.toml ${level:+--level "$level"} --time-limit "@$end" --json result.json
code=$?
# 75: the time is over, or no spare is left.
if [ "$code" != 75 ]; then
    rm -f "$images/failed"
    exit "$code"
fi
# The next job continues from the images. Those of a second epoch show that the first are whole:
# images that fail leave files, too. After three jobs in a row without them no other is queued.
epochs=$(find "$images" -name 't*.e*' -newer "$images/begun" | sed 's/.*\.//' | sort -u | wc -l)
if [ "$epochs" -gt 1 ]; then
    rm -f "$images/failed"
else
    echo "$code" >> "$images/failed" || { echo "no further job: jobs cannot be counted in $images" >&2; exit 2; }
    if [ "$(wc -l < "$images/failed")" -ge 3 ]; then
        rm -f "$images/failed"
        echo "no further job: no images of two epochs in $images; this one ended with $code" >&2
        exit 2
    fi
fi
scontrol requeue "$SLURM_JOB_ID" || { echo "no further job: scontrol requeue failed" >&2; exit 2; }
exit 75
