"""Hugging Face's Trainer on a tiny Llama with grouped queries."""

import torch
import transformers

transformers.set_seed(0)
config = transformers.LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
)
model = transformers.LlamaForCausalLM(config)
data = [{"input_ids": row, "labels": row} for row in torch.randint(64, (64, 24))]
arguments = transformers.TrainingArguments(
    "output",
    max_steps=30,
    per_device_train_batch_size=4,
    logging_steps=7,
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
    save_strategy="no",
    seed=0,
)
trainer = transformers.Trainer(
    model,
    arguments,
    train_dataset=data,
    # ATTACH
)
trainer.train()
