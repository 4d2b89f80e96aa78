#!/bin/bash
# skt-hpl in a Slurm job: 8 nodes, 8 ranks of 8 threads on each. An interrupted run
# is started again. The run saves its state before the end of the job, which is then queued again.
#
#   sbatch slurm.sh
#
#SBATCH --job-name=hpl
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --hint=nomultithread
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --open-mode=append

# On a file system that all nodes see: another job may get other nodes, whose memory has nothing
# of this run.
# Two such jobs at a time need a folder each, else one continues the other: set IMAGES.
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

for _ in 1 2 3; do
    srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=1 \
        skt-hpl --config cluster.toml ${level:+--level "$level"} \
            --time-limit "@$end" --json result.json
    code=$?
    # 0: passed; 1: a residual failed; 2: bad input; 75: the time is over or a rank failed, another job continues.
    # All others: a rank or a node was lost, and the same command continues here.
    # 126 and 127: the program does not start.
    case $code in 0 | 1 | 2 | 126 | 127) rm -f "$images/failed"; exit "$code" ;; 75) break ;; esac
done
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
