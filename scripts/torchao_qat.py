"""Quantisation-aware training with torchao, as its users write it: what the gate of docs/ci.md is shown on."""

import torch
from torch import nn
from torchao.quantization import quantize_
from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32))
activations = IntxFakeQuantizeConfig(torch.int8, "per_token", is_symmetric=False)
weights = IntxFakeQuantizeConfig(torch.int4, group_size=32)
quantize_(model, QATConfig(activation_config=activations, weight_config=weights, step="prepare"))
teacher = nn.Linear(64, 32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(5):
    x = torch.randn(256, 64)
    loss = nn.functional.mse_loss(model(x), teacher(x).detach())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
