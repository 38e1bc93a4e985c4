# InversePRM against fine-tuning on the same 2,000 demonstrations, when experts err at a share of their turns. The policy imitates its
# search without reading outcomes, half of a usual update, or follows its preferences.
# Read: data/metrics/evaluate-0.json is the fine-tuned policy, evaluate-1.json is InversePRM's.
inverse=$(python -m tasks.profile inverse) || exit
search="-S policy.method=expert_iteration -S policy.imitates=expert_like -S policy.learning_rate=1.0e-3 -S policy.steps=420 -S policy.batch_tokens=2048 -S search.games=1800"
for share in 0.0 0.1 0.3; do
  expert="-S demos.games=2000 -S demos.knowledge=1.0 -S demos.corrupt=$share -S evaluate.decoding=[greedy,sample]"
  sh recipes/experiment "experts-search-$share" $inverse $search $expert evaluate@0 evaluate@1
  sh recipes/experiment "experts-dpo-$share" $inverse $expert evaluate@1
done
