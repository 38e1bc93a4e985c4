# Every PRM of a campaign on the states of every iteration. Read: what it prints, a column at a time.
# ROOMS=DIR: the folder of a finished campaign of experiment 20; without it the default's two seeds alone.
for seed in 1 2; do
  THEN="python -m benchmarks.ranking_matrix --campaign ." \
    sh experiments/run "matrix-$seed" no_memory "seed=$seed" -- prm@1 prm@2 prm@3
done
if [ -n "${ROOMS:-}" ]; then python -m benchmarks.ranking_matrix --campaign "$ROOMS"; fi
