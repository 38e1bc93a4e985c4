# AgentPRM and InversePRM on the published games; iteration 0 is fine-tuning on the same demonstrations.
# ALFWORLD_DATA is the folder that alfworld-download filled. DEVICE=cuda PRECISION=bfloat16 for a GPU.
: "${ALFWORLD_DATA:?the folder that alfworld-download filled}"
games=$(python -m tasks.profile alfworld "games.published_root=$ALFWORLD_DATA")
games="$games -S compute.device=${DEVICE:-cpu} -S compute.precision=${PRECISION:-float32}"
inverse=$(python -m tasks.profile inverse)
for turns in 30 50; do
  sh recipes/experiment "alfworld-$turns" $games -S env.max_turns=$turns
  sh recipes/experiment "alfworld-inverse-$turns" $games $inverse -S env.max_turns=$turns
done
