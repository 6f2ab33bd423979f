"""Watching Hugging Face models, and from inside the Hugging Face Trainer and Lightning."""

import logging

import numpy as np
import pytest
import torch
from torch import nn

from unstuck import Watch
from unstuck.attach import attention_maps
from unstuck.attach.callbacks import check_trained, lightning_callback, trainer_callback
from unstuck.errors import InvalidCombination

transformers = pytest.importorskip("transformers")
SMALL = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}


def gpt2(**options):
    sizes = {"vocab_size": 32, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 4}
    return transformers.GPT2LMHeadModel, transformers.GPT2Config(bos_token_id=0, eos_token_id=0, **sizes, **options)


def llama(**options):
    config = transformers.LlamaConfig(num_key_value_heads=2, max_position_embeddings=64, **SMALL, **options)
    return transformers.LlamaForCausalLM, config


def bert(**options):
    return transformers.BertModel, transformers.BertConfig(max_position_embeddings=64, **SMALL, **options)


@pytest.mark.parametrize("family", [gpt2, llama, bert])
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_the_weights_are_those_the_model_itself_reports(family, kernel):
    torch.manual_seed(0)
    kind, config = family(attn_implementation=kernel)
    model, tokens = kind(config).eval(), torch.randint(32, (3, 10))
    plain = kind(family(attn_implementation="eager")[1]).eval()
    plain.load_state_dict(model.state_dict())
    expected = plain(tokens, output_attentions=True).attentions
    found = attention_maps(model, {"input_ids": tokens})
    assert len(found) == len(expected) == 2
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    assert model.config._attn_implementation == kernel


def test_the_trainer_of_hugging_face(tmp_path):
    torch.manual_seed(0)
    kind, config = gpt2()
    model = kind(config)
    data = [{"input_ids": row, "labels": row} for row in torch.randint(32, (32, 12))]
    watch = Watch(model, {"input_ids": torch.randint(32, (4, 12))}, every=2)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=6, logging_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no"
    )
    transformers.Trainer(model, arguments, train_dataset=data, callbacks=[trainer_callback(watch)]).train()
    assert watch.curve.steps.tolist() == [0, 2, 4, 6]  # 0: what later looks are compared with
    assert np.isfinite(watch.curve.values("train_loss")).tolist() == [False, True, True, True]
    assert watch.curve.heads("row_entropy").shape == watch.curve.heads("distance").shape == (4, 2, 4)


def test_a_model_that_the_trainer_does_not_train_is_said(tmp_path):
    kind, config = gpt2()
    watch = Watch(kind(config), {"input_ids": torch.randint(32, (4, 12))}, every=2)
    data = [{"input_ids": row, "labels": row} for row in torch.randint(32, (8, 12))]
    arguments = transformers.TrainingArguments(str(tmp_path), max_steps=2, report_to=[], use_cpu=True)
    trainer = transformers.Trainer(
        model_init=lambda: kind(config), args=arguments, train_dataset=data, callbacks=[trainer_callback(watch)]
    )
    with pytest.raises(InvalidCombination):
        trainer.train()
    part = nn.Sequential(watch.model)
    check_trained(watch, part)  # the whole of which the watched model is a part


@pytest.mark.parametrize("batches", [1, 4])  # to an optimiser step
def test_lightning(tmp_path, batches):
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, x):
            return self.layer(x)

        def training_step(self, batch, index):
            loss = self(batch).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    watch = Watch(module, torch.randn(3, 5, 8), every=2)
    trainer = lightning.Trainer(
        max_steps=6,
        accumulate_grad_batches=batches,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[lightning_callback(watch)],
    )
    trainer.fit(module, torch.utils.data.DataLoader(torch.randn(16, 5, 8), batch_size=4))
    assert watch.curve.steps.tolist() == [0, 2, 4, 6]
    assert np.isfinite(watch.curve.values("loss")).tolist() == [False, True, True, True]
