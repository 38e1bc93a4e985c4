# InversePRM against fine-tuning on the same demonstrations, when experts err at a share of their turns.
# Read: data/metrics/evaluate-0.json is the fine-tuned policy, evaluate-1 and -2 are InversePRM's.
inverse=$(python -m tasks.profile inverse) || exit
for share in 0.0 0.1 0.3; do
  sh recipes/experiment "experts-$share" $inverse -S demos.corrupt=$share evaluate@0 evaluate@1 evaluate@2
done
