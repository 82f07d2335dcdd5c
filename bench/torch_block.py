"""The block of nanoGPT in plain torch, which the benchmarks of training steps hold against ours."""
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, channels, heads, inner, dropout=0.0):
        super().__init__()
        self.heads, self.dropout, self.drop = heads, dropout, nn.Dropout(dropout)
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.attn, self.attn_proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.fc, self.fc_proj = nn.Linear(channels, inner), nn.Linear(inner, channels)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                   for y in self.attn(self.ln_1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        x = x + self.drop(self.attn_proj(y.transpose(1, 2).reshape(B, T, C)))
        return x + self.drop(self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh")))
