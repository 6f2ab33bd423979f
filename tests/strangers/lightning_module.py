"""A module of Lightning around PyTorch's own encoder layers."""

import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn import functional as F


class LanguageModel(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.embed, self.positions = nn.Embedding(48, 32), nn.Parameter(torch.randn(1, 40, 32) / 10)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 48)

    def forward(self, tokens):
        x = self.embed(tokens) + self.positions[:, : tokens.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.layers(x, mask=mask, is_causal=True))

    def training_step(self, batch, batch_idx):
        (tokens,) = batch
        return F.cross_entropy(self(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


pl.seed_everything(0)
model = LanguageModel()
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.randint(48, (240, 33))), batch_size=4, shuffle=True
)
trainer = pl.Trainer(
    max_steps=30,
    accumulate_grad_batches=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    # ATTACH
)
trainer.fit(model, loader)
