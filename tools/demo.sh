#!/usr/bin/env bash
# The main job on real input: a quantized mixture of experts that has only read fairy tales learns to answer a question.
# usage: tools/demo.sh TANDEM_BINARY [more flags for `tandem train`]
set -euo pipefail
tandem=$1
shift
model=demo/tale-moe-Q4_K_M.gguf
out=${TMPDIR:-/tmp}/tandem-demo-animals-lora.gguf

questions=(
  "Which animal? The wolf came to the door and knocked, and asked the seven kids to let him in."
  "Which animal? One morning the old hen laid an egg as big as her own head."
  "Which animal? Then the king mounted his horse and rode into the forest."
)

ask() {
  for q in "${questions[@]}"; do
    printf '  %s\n' "$q"
    printf '    -> %s\n' "$("$tandem" generate -m "$model" --chat --prompt "$q" -n 12 "$@" 2>/dev/null | tr '\n' ' ')"
  done
}

printf '\nThe model is %s: 4.2 million weights, 8 experts, quantized to 4 to 8 bits.\n' "$model"
printf 'It never saw a chat. Before training it answers:\n\n'
ask
printf '\nNow a LoRA on its attention learns from demo/animals-train.jsonl, through the frozen experts:\n\n'
"$tandem" train -m "$model" --train-file demo/animals-train.jsonl --val-file demo/animals-test.jsonl \
  --lora-targets attention --lora-rank 4 --lora-alpha 8 --epochs 8 --batch-size-seq 16 --learning-rate 4e-3 \
  --lr-scheduler linear --warmup-steps 20 --ubatch-size 1024 --steps-per-report 50 --adapter-path "$out" "$@"
printf '\nWith the adapter it answers:\n\n'
ask --lora "$out"
printf '\nThe adapter is %s; llama.cpp loads it too (--lora).\n' "$out"
