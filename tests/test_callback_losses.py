"""The loss in each row of a watch in a trainer is the one that a plain loop computes at the same steps."""

import copy
import logging

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import unstuck

EVERY, STEPS = 3, 9


def means(losses):
    """Over the steps between two rows."""
    return np.array(losses).reshape(-1, EVERY).mean(1)


@pytest.mark.parametrize("batches", [1, 2])  # to an optimiser step
def test_the_trainer_of_hugging_face(tmp_path, batches):
    """Sequences with different numbers of labels: a step's loss is the mean over all labels of its batches."""
    transformers = pytest.importorskip("transformers")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 4}
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = transformers.GPT2Config(bos_token_id=0, eos_token_id=0, **sizes, **dropout)
    model = transformers.GPT2LMHeadModel(config)
    twin = copy.deepcopy(model)
    tokens = torch.randint(6, (4 * batches * STEPS, 12))  # of 32, which is soon learnt
    labels = tokens.masked_fill(torch.arange(12) < torch.randint(1, 8, (len(tokens), 1)), -100)
    data = [{"input_ids": row, "labels": label} for row, label in zip(tokens, labels, strict=True)]

    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *args):
            return torch.utils.data.SequentialSampler(data)

    arguments = transformers.TrainingArguments(
        str(tmp_path),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=batches,
        learning_rate=0.5,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0.0,
        logging_steps=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    callback = unstuck.TrainerCallback(every=EVERY)
    InOrder(model, arguments, train_dataset=data, callbacks=[callback]).train()

    losses, optimizer = [], torch.optim.SGD(twin.parameters(), lr=0.5)
    for inputs, wanted in zip(tokens.split(4 * batches), labels.split(4 * batches), strict=True):
        logits = twin(inputs).logits[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), wanted[:, 1:].flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    curve = callback.watch.curve
    at = [int(step) for step in np.searchsorted(curve.steps, np.arange(EVERY, STEPS + 1, EVERY))]
    assert np.allclose(curve.values("train_loss")[at], means(losses), rtol=1e-4)
    assert losses[-1] < losses[0] - 0.01  # so that a loss of other steps would differ


@pytest.mark.parametrize("form", ["tensor", "mapping"])
@pytest.mark.parametrize("batches", [1, 2])
def test_lightning(tmp_path, batches, form):
    lightning = pytest.importorskip("lightning.pytorch")
    torch.manual_seed(0)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

        def forward(self, x):
            return self.layer(x)

        def training_step(self, batch, index):
            loss = (self(batch) - 1).square().mean()
            return loss if form == "tensor" else {"loss": loss}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module, data = Module(), torch.randn(4 * batches * STEPS, 5, 8)
    twin = copy.deepcopy(module)
    callback = unstuck.LightningCallback(every=EVERY)
    trainer = lightning.Trainer(
        max_steps=STEPS,
        accumulate_grad_batches=batches,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[callback],
    )
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=4))

    losses, optimizer = [], twin.configure_optimizers()
    for step in data.split(4 * batches):
        parts = [(twin(batch) - 1).square().mean() for batch in step.split(4)]
        optimizer.zero_grad()
        (sum(parts) / batches).backward()
        optimizer.step()
        losses.append(sum(parts).item() / batches)
    curve = callback.watch.curve
    at = [int(step) for step in np.searchsorted(curve.steps, np.arange(EVERY, STEPS + 1, EVERY))]
    assert np.allclose(curve.values("train_loss")[at], means(losses), rtol=1e-4)
    assert losses[-1] < losses[0] - 0.01
