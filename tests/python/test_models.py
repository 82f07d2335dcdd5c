"""Models against Hugging Face's transformers: the same files, the same logits, the same gradients; both ways."""
import ctypes
import itertools
import json
import re

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from tally_c import TallyError, Tensor, tl

transformers = pytest.importorskip("transformers")

SMALL = dict(num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, hidden_size=32, intermediate_size=88,
             vocab_size=97, max_position_embeddings=40, pad_token_id=None)  # its embedding would have no gradient
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16, "rope_theta": 500.0}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.1, 1.3, 1.5],
        "long_factor": [1.5, 2.5, 4.0, 7.0], "original_max_position_embeddings": 16}
WINDOW = dict(use_sliding_window=True, sliding_window=4, max_window_layers=1)


def of(family, **changes):
    """A maker of a small config of a family, "Llama"."""
    return lambda: getattr(transformers, family + "Config")(**{**SMALL, **changes})


def falcon(**changes):
    sizes = dict(num_hidden_layers=3, num_attention_heads=4, hidden_size=32, vocab_size=97, max_position_embeddings=40)
    return lambda: transformers.FalconConfig(**{**sizes, **changes})


def deepseek(family, **changes):
    return of(family, num_key_value_heads=4, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
              n_routed_experts=8, n_shared_experts=2, moe_intermediate_size=24, num_experts_per_tok=3,
              first_k_dense_replace=1, **changes)


CONFIGS = {
    "gpt2": lambda: transformers.GPT2Config(n_layer=3, n_head=4, n_embd=32, vocab_size=97, n_positions=40,
                                            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "llama": of("Llama"),
    "llama 3's positions": of("Llama", num_key_value_heads=1, hidden_size=64, max_position_embeddings=64, head_dim=32,
                              tie_word_embeddings=True, rope_parameters=LLAMA3),
    "llama with biases": of("Llama", attention_bias=True, mlp_bias=True),
    "qwen2": of("Qwen2", tie_word_embeddings=True),
    "qwen2 with windows": of("Qwen2", **WINDOW),
    "mistral": of("Mistral", sliding_window=5, head_dim=16),
    "mistral without a window": of("Mistral", sliding_window=None),
    "qwen3": of("Qwen3", head_dim=16, tie_word_embeddings=True),
    "qwen3 with windows": of("Qwen3", head_dim=8, attention_bias=True, **WINDOW),
    "olmo2": of("Olmo2"),
    "gpt_neox": of("GPTNeoX", num_key_value_heads=None),
    "gpt_neox, one after the other": of("GPTNeoX", num_key_value_heads=None, use_parallel_residual=False,
                                        rotary_pct=0.5),
    "nemotron": of("Nemotron", head_dim=8),
    "phi3": of("Phi3", num_key_value_heads=4, sliding_window=5),
    "phi3 with a part of each head": of("Phi3", rope_parameters={
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}),
    "phi3, a short row of longrope": of("Phi3", rope_parameters=LONG, original_max_position_embeddings=16),
    "phi3, a long row of longrope": of("Phi3", rope_parameters={**LONG, "original_max_position_embeddings": 8},
                                       original_max_position_embeddings=8),
    "gpt_bigcode": lambda: transformers.GPTBigCodeConfig(n_layer=3, n_head=4, n_embd=32, vocab_size=97, n_positions=40,
                                                         resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "gemma": of("Gemma", head_dim=16),
    "gemma3": of("Gemma3Text", num_hidden_layers=4, head_dim=16, query_pre_attn_scalar=24, sliding_window=5,
                 layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]),
    "gemma2": of("Gemma2", head_dim=16, query_pre_attn_scalar=24, sliding_window=5, attn_logit_softcapping=0.5,
                 final_logit_softcapping=0.3, attn_implementation="eager"),  # its other attention has no cap
    "gemma2 without caps": of("Gemma2", head_dim=8, sliding_window=4, attn_logit_softcapping=None,
                              final_logit_softcapping=None, attention_bias=True),
    "smollm3": of("SmolLM3", num_hidden_layers=5, no_rope_layer_interval=2),
    "smollm3 with biases": of("SmolLM3", mlp_bias=True, tie_word_embeddings=False, no_rope_layers=[1, 1, 0]),
    "falcon": falcon(),
    "falcon with two norms": falcon(new_decoder_architecture=True, num_kv_heads=2),
    "falcon with one norm and groups": falcon(new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1,
                                              ffn_hidden_size=72, tie_word_embeddings=False),
    "falcon, one after the other, alibi": falcon(alibi=True, parallel_attn=False, multi_query=False, bias=True),
    "falcon, alibi of 6 heads": falcon(alibi=True, num_attention_heads=6, hidden_size=48),
    "deepseek_v2": deepseek("DeepseekV2", q_lora_rank=12, topk_method="group_limited_greedy", routed_scaling_factor=1.5,
                            n_group=4, topk_group=2),
    "deepseek_v2 with long positions": deepseek("DeepseekV2", q_lora_rank=None, topk_method="greedy", rope_parameters={
        "rope_type": "yarn", "factor": 4.0, "mscale": 0.707, "mscale_all_dim": 0.5, "rope_theta": 500.0,
        "original_max_position_embeddings": 16}),
    "deepseek_v3": deepseek("DeepseekV3", q_lora_rank=12, n_group=4, topk_group=2, rope_parameters={
        "rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0, "rope_theta": 500.0,
        "original_max_position_embeddings": 16}),
    "llama4": of("Llama4Text", num_hidden_layers=5, head_dim=8, intermediate_size=24, intermediate_size_mlp=40,
                 num_local_experts=4, interleave_moe_layer_step=2, attention_chunk_size=4, floor_scale=3,
                 no_rope_layer_interval=3),
    "llama4 of experts alone": of("Llama4Text", head_dim=8, num_local_experts=3, num_experts_per_tok=2,
                                  use_qk_norm=False, attn_temperature_tuning=False, attention_bias=True,
                                  no_rope_layers=[1, 1, 1]),
    "mixtral": of("Mixtral", num_local_experts=5, sliding_window=5),
    "qwen3_moe": of("Qwen3Moe", head_dim=8, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=24,
                    norm_topk_prob=True),
    "qwen3_moe with biases": of("Qwen3Moe", head_dim=8, num_experts=4, num_experts_per_tok=1, attention_bias=True,
                                moe_intermediate_size=24, tie_word_embeddings=True),
    "olmoe": of("Olmoe", num_experts=6, num_experts_per_tok=4),
    "gpt_oss": of("GptOss", num_hidden_layers=4, head_dim=16, num_local_experts=6, num_experts_per_tok=3,
                  sliding_window=5, swiglu_limit=0.4, rope_parameters={
                      "rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                      "original_max_position_embeddings": 16, "rope_theta": 500.0}),
    "yarn": of("Llama", hidden_size=64, rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 500.0,
                                                         "original_max_position_embeddings": 16}),
    "dynamic": of("Llama", rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}),
}


def make_theirs(name):
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](), dtype=torch.float32)
    with torch.no_grad():  # biases and norms begin as 0 and 1, which would hide a mix-up
        for p in model.parameters():
            p.add_(0.02 * torch.randn_like(p))
        for name, bias in model.named_buffers():  # of the choice of experts
            if name.endswith("e_score_correction_bias"):
                bias.add_(0.1 * torch.randn_like(bias))
    return model.eval()


class Model:
    """A model of ours from a folder."""

    def __init__(self, folder, dtype=np.float32):
        self.config = tl.model_config()
        tl.model_config_read(str(folder / "config.json"), self.config)
        self.module = tl.model_new(self.config, np.dtype(dtype), None)
        self.load(folder)

    def load(self, folder):
        tl.model_load(self.module, str(folder))

    def __del__(self):
        tl.library.tl_module_free(self.module)

    def tensors(self):
        n = ctypes.c_int()
        rows = ctypes.cast(tl.library.tl_module_list(self.module, ctypes.byref(n)), ctypes.POINTER(tl.named_tensor))
        return {ctypes.cast(rows[i].name, ctypes.c_char_p).value.decode(): Tensor(rows[i].tensor)
                for i in range(n.value)}


@pytest.fixture(params=CONFIGS)
def both(request, tmp_path):
    theirs = make_theirs(request.param)
    theirs.save_pretrained(tmp_path)
    return Model(tmp_path), theirs, tmp_path


def is_transposed(theirs, name):
    return theirs.config.model_type == "gpt2" and ".c_" in name and name.endswith("weight")


def gradients(ours, theirs):
    """Of our tensors, by the names of their modules, which are newer than those in files for GPT-NeoX's head and
    Mixtral's experts. Theirs have the gates of experts and what is gated in one."""
    older = {"embed_out.weight": "lm_head.weight"} if theirs.config.model_type == "gpt_neox" else {}
    found = {older.get(name, name).replace("block_sparse_moe", "mlp"): x.grad.numpy()
             for name, x in ours.tensors().items() if not name.endswith("e_score_correction_bias")}
    for name in [name for name in found if ".experts." in name]:
        for gate, up, down in (("w1", "w3", "w2"), ("gate_proj", "up_proj", "down_proj")):
            stem, _, last = name.removesuffix(".weight").rpartition(".")
            if last == gate:
                up = found.pop(f"{stem}.{up}.weight")
                found[f"{stem}.gate_up_proj"] = np.concatenate([found.pop(name), up], 1)
            elif last == down:
                found[f"{stem}.down_proj"] = found.pop(name)
    return found


def gradients_compare(ours, theirs, left_out=None):
    """Of all parameters but one that only theirs have."""
    wanted = {name: p.grad.numpy() for name, p in theirs.named_parameters() if name != left_out}
    found = gradients(ours, theirs)
    assert set(found) == set(wanted)
    for name, want in wanted.items():
        got = found[name]
        if is_transposed(theirs, name):
            got = got.T
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max(), err_msg=name)


def tokens(seed=0, shape=(2, 11)):
    return np.random.default_rng(seed).integers(0, 97, shape)


def test_logits_are_transformers(both):
    ours, theirs, _ = both
    ids = tokens()
    want = theirs(torch.from_numpy(ids)).logits.detach().numpy()
    got = tl.model_logits(ours.module, tl.tensor(ids)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_every_gradient_is_transformers(both):
    ours, theirs, _ = both
    ids, targets = tokens(), tokens(1)
    logits = theirs(torch.from_numpy(ids)).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).flatten())
    loss.backward()
    our_loss = tl.model_loss(ours.module, tl.tensor(ids), tl.tensor(targets))
    assert our_loss.numpy() == pytest.approx(loss.item(), rel=1e-5)
    tl.backward(our_loss, None, 0)
    gradients_compare(ours, theirs)


def causal(q, k, v, added=None):
    T = q.shape[-2]
    scores = q @ k.transpose(-1, -2) / q.shape[-1]**0.5 + (0 if added is None else added)
    return scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf).softmax(-1) @ v


def turned(x, base=10000.0):
    half = x.shape[-1] // 2
    angle = torch.outer(torch.arange(x.shape[-2]), base ** (-torch.arange(half) / half))
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def distances(q):
    """ALiBi of Press, Smith and Lewis: -2^(-8 h / H) (t - s) for head h = 1 .. H."""
    H, T = q.shape[1], q.shape[2]
    place = torch.arange(T)
    return 2.0 ** (-8.0 * torch.arange(1, H + 1) / H)[:, None, None] * (place[None, :] - place[:, None])


ATTENTION = {"none": causal, "rope": lambda q, k, v: causal(turned(q), turned(k), v),
             "alibi": lambda q, k, v: causal(q, k, v, distances(q))}


@pytest.mark.parametrize("name", ATTENTION)
def test_gpt2_without_learned_positions(name, tmp_path):
    """transformers' GPT-2 with that attention, and zeros in place of its positions."""
    functions = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
    functions.register("ours", lambda m, q, k, v, *_, **__: (ATTENTION[name](q, k, v).transpose(1, 2), None))
    theirs = make_theirs("gpt2")
    theirs.config._attn_implementation = "ours"
    torch.nn.init.zeros_(theirs.transformer.wpe.weight)
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "position_embedding_type": name}))
    weights = load_file(tmp_path / "model.safetensors")
    save_file({key: x for key, x in weights.items() if "wpe" not in key}, tmp_path / "model.safetensors")
    ours, ids, targets = Model(tmp_path), tokens(), tokens(1)
    logits = theirs(torch.from_numpy(ids)).logits
    np.testing.assert_allclose(tl.model_logits(ours.module, tl.tensor(ids)).numpy(), logits.detach().numpy(), rtol=1e-4,
                               atol=1e-5 * logits.abs().max().item())
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).flatten()).backward()
    tl.backward(tl.model_loss(ours.module, tl.tensor(ids), tl.tensor(targets)), None, 0)
    gradients_compare(ours, theirs, "transformer.wpe.weight")
    tl.model_config_write(ours.config, str(tmp_path / "again.json"))
    assert json.loads((tmp_path / "again.json").read_text())["position_embedding_type"] == name


def vector(tensors):
    return np.concatenate([np.asarray(x, np.float64).ravel() for x in tensors])


def theirs_run(model, ids, targets):
    """Logits, and all gradients in one vector, by name."""
    model.zero_grad()
    logits = model(ids).logits
    torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), targets.flatten()).backward()
    grads = {name: p.grad.double().numpy() for name, p in model.named_parameters()}
    return logits.detach().double().numpy(), grads


@pytest.mark.parametrize("name", CONFIGS)
def test_bf16_is_as_close_to_the_truth_as_transformers(name, tmp_path):
    """Logits and gradients of parameters in bf16: at most twice as far from those in f32 as transformers' own are. A
    router may choose other experts for a token, in theirs and in ours, so that the distance is that of the whole."""
    theirs = make_theirs(name).to(torch.bfloat16)
    theirs.save_pretrained(tmp_path)
    ours, ids, targets = Model(tmp_path, ml_dtypes.bfloat16), tokens(5, (4, 24)), tokens(6, (4, 24))
    got_logits, got = theirs_run(theirs, torch.from_numpy(ids), torch.from_numpy(targets))
    true_logits, true = theirs_run(theirs.float(), torch.from_numpy(ids), torch.from_numpy(targets))
    our_logits = tl.model_logits(ours.module, tl.tensor(ids)).numpy().astype(np.float64)
    tl.backward(tl.model_loss(ours.module, tl.tensor(ids), tl.tensor(targets)), None, 0)
    found = gradients(ours, theirs)
    found = {key: found[key].T if is_transposed(theirs, key) else found[key] for key in true}
    for mine, other, want in ((our_logits.ravel(), got_logits.ravel(), true_logits.ravel()),
                              (vector(found[key] for key in true), vector(got.values()), vector(true.values()))):
        assert np.linalg.norm(mine - want) <= 2 * np.linalg.norm(other - want)


EXPERTS = [name for name in CONFIGS if "moe" in name or "mixtral" in name or "oss" in name]


@pytest.mark.parametrize("name", EXPERTS)
def test_losses_of_routers_are_transformers(name, tmp_path):
    """Their loss of balance, and the z-loss of Switch Transformers; bitwise the same under every checkpoint policy."""
    theirs = make_theirs(name)
    theirs.save_pretrained(tmp_path)
    ours, ids, targets = Model(tmp_path), tokens(), tokens(1)
    result = theirs(torch.from_numpy(ids), output_router_logits=True)
    loss = torch.nn.functional.cross_entropy(result.logits.flatten(0, 1), torch.from_numpy(targets).flatten())
    z = torch.cat([logits.reshape(-1, logits.shape[-1]) for logits in result.router_logits]).logsumexp(-1)
    (loss + 0.5 * result.aux_loss + 0.25 * z.square().mean()).backward()
    tl.model_set_router_losses(ours.module, 0.5, 0.25)
    bits = set()
    for policy in range(6):
        tl.model_set_checkpointing(ours.module, policy, 2)
        for x in ours.tensors().values():
            tl.set_grad(x, None)
        our_loss = tl.model_loss(ours.module, tl.tensor(ids), tl.tensor(targets))
        tl.backward(our_loss, None, 0)
        found = gradients(ours, theirs)
        bits.add((our_loss.numpy().tobytes(), *(g.tobytes() for g in found.values())))
    assert len(bits) == 1
    want = loss + 0.5 * result.aux_loss + 0.25 * z.square().mean()
    assert our_loss.numpy() == pytest.approx(want.item(), rel=1e-5)
    for key, p in theirs.named_parameters():
        np.testing.assert_allclose(found[key], p.grad.numpy(), rtol=1e-4, atol=1e-4 * p.grad.abs().max().item(),
                                   err_msg=key)


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3", "llama4", "llama4 of experts alone"])
def test_losses_of_routers_that_transformers_has_no_loss_of(name, tmp_path):
    """E sum f p, of the choices that their routers make, and the z-loss: the formulas in docs/training.md, written out
    over the logits of transformers' own routers."""
    theirs, seen = make_theirs(name), []
    for module in theirs.modules():
        if type(module).__name__.endswith("Router"):
            module.register_forward_hook(lambda m, _, out: seen.append(
                (out[1], out[1].topk(m.top_k)[1]) if len(out) == 2 else (out[0], out[2])))
        if hasattr(module, "e_score_correction_bias"):  # chosen are others than the likeliest
            module.e_score_correction_bias.copy_(torch.linspace(-0.3, 0.3, len(module.e_score_correction_bias)))
    theirs.save_pretrained(tmp_path)
    ours, ids, targets = Model(tmp_path), tokens(), tokens(1)
    logits = theirs(torch.from_numpy(ids)).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).flatten())
    routers, choices = (torch.cat([x.flatten(0, -2) for x in part]) for part in zip(*seen))
    n_experts = routers.shape[-1]
    f = torch.nn.functional.one_hot(choices, n_experts).float().mean(0).sum(0)  # k shares of choices
    balance = n_experts * (f * routers.softmax(-1).mean(0)).sum()
    want = loss + 0.5 * balance + 0.25 * routers.logsumexp(-1).square().mean()
    want.backward()
    tl.model_set_router_losses(ours.module, 0.5, 0.25)
    our_loss = tl.model_loss(ours.module, tl.tensor(ids), tl.tensor(targets))
    tl.backward(our_loss, None, 0)
    assert our_loss.numpy() == pytest.approx(want.item(), rel=1e-5)
    assert abs(want.item() - loss.item()) > 0.1 and not torch.allclose(f, f.mean())
    found = gradients(ours, theirs)
    for key, p in theirs.named_parameters():
        np.testing.assert_allclose(found[key], p.grad.numpy(), rtol=1e-4, atol=1e-4 * p.grad.abs().max().item(),
                                   err_msg=key)


def test_experts_may_come_in_any_order(tmp_path):
    """Sums are over a token's choices, by probability: other numbers for the experts change nothing."""
    theirs = make_theirs("olmoe")
    theirs.save_pretrained(tmp_path)
    tensors, order = load_file(tmp_path / "model.safetensors"), [3, 0, 5, 1, 4, 2]
    model = Model(tmp_path, np.float64)
    want = tl.model_logits(model.module, tl.tensor(tokens())).numpy()
    moved = {re.sub(r"experts\.(\d+)", lambda m: f"experts.{order[int(m[1])]}", name): x for name, x in tensors.items()}
    for name in (name for name in moved if name.endswith("mlp.gate.weight")):
        moved[name] = tensors[name][np.argsort(order)]
    save_file(moved, tmp_path / "model.safetensors", {"format": "pt"})
    model.load(tmp_path)
    got = tl.model_logits(model.module, tl.tensor(tokens())).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


def masks(config, added):
    """What a model adds to the scores of its layers: in some it also hides what is outside of the window."""
    window = getattr(config, "sliding_window", None)
    if not window:
        return added
    far = torch.ones(added.shape[-2:]).tril(-window).bool()
    near = added.masked_fill(far, torch.finfo(torch.float32).min)
    if not getattr(config, "layer_types", None):
        return near
    return {"full_attention": added, "sliding_attention": near}


def test_documents_are_transformers_with_a_block_diagonal_mask(both):
    """Losses of rows that hold several documents, and every gradient."""
    ours, theirs, _ = both
    if getattr(theirs.config, "alibi", False) or theirs.config.model_type == "llama4_text":
        pytest.skip("theirs counts places from the row's beginning: test_module.c compares with documents alone")
    ids, targets = tokens(2, (3, 24)), tokens(3, (3, 24))
    begins = np.random.default_rng(4).random(ids.shape) < 0.2
    place = np.arange(24)
    first = np.maximum.accumulate(np.where(begins, place, 0), 1)
    seen = torch.from_numpy((place[None, :, None] >= place) & (place >= first[:, :, None]))[:, None]  # (B,1,T,T)
    added = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    added = masks(theirs.config, added)
    logits = theirs(torch.from_numpy(ids), attention_mask=added, position_ids=torch.from_numpy(place - first)).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).flatten())
    loss.backward()
    begin, want = tl.tensor(first.astype(np.int32)), logits.detach().numpy()
    got = tl.model_document_logits(ours.module, tl.tensor(ids), begin).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
    our_loss = tl.model_document_loss(ours.module, tl.tensor(ids), tl.tensor(targets), begin)
    assert our_loss.numpy() == pytest.approx(loss.item(), rel=1e-5)
    tl.backward(our_loss, None, 0)
    found = gradients(ours, theirs)
    for name, p in theirs.named_parameters():
        got, want = found[name], p.grad.numpy()
        if is_transposed(theirs, name):
            got = got.T
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max(), err_msg=name)


def test_what_we_save_transformers_loads(both, tmp_path_factory):
    ours, theirs, before = both
    folder = tmp_path_factory.mktemp("saved")
    tl.model_save(ours.module, str(folder))
    back = type(theirs).from_pretrained(folder).eval()
    ids = torch.from_numpy(tokens())
    assert torch.equal(back(ids).logits, theirs(ids).logits)
    saved, given = ({k: v.tobytes() for k, v in load_file(f / "model.safetensors").items()} for f in (folder, before))
    assert saved == given


@pytest.mark.parametrize("name", ["gpt2", "llama", "mixtral", "gpt_oss", "deepseek_v3"])
def test_a_model_in_several_files_loads(name, tmp_path):
    theirs, folder, whole = make_theirs(name), tmp_path / "shards", tmp_path / "whole"
    theirs.save_pretrained(whole)
    theirs.save_pretrained(folder, max_shard_size="20KB")
    assert (folder / "model.safetensors.index.json").exists()
    ours, again = Model(whole), Model(folder)
    ids = tl.tensor(tokens())
    assert np.array_equal(tl.model_logits(again.module, ids).numpy(), tl.model_logits(ours.module, ids).numpy())


def test_a_bare_model_without_the_first_part_of_names_loads(tmp_path):
    theirs = make_theirs("gpt2")
    theirs.transformer.save_pretrained(tmp_path)
    ours = Model(tmp_path)
    want = theirs(torch.from_numpy(tokens())).logits.detach().numpy()
    np.testing.assert_allclose(tl.model_logits(ours.module, tl.tensor(tokens())).numpy(), want, rtol=1e-4,
                               atol=1e-5 * np.abs(want).max())


def test_wrong_files_are_refused_by_name(tmp_path):
    theirs = make_theirs("llama")
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    ours = Model(tmp_path)
    index_path = tmp_path / "model.safetensors.index.json"
    index = json.loads(index_path.read_text())

    def refused(change, words):
        broken = json.loads(json.dumps(index))
        change(broken)
        index_path.write_text(json.dumps(broken))
        with pytest.raises(TallyError, match=words):
            ours.load(tmp_path)
    refused(lambda i: i.update(weight_map=7), 'has no "weight_map" object')
    refused(lambda i: i["weight_map"].update({"model.norm.weight": "../x"}), "not in a file beside the index")
    refused(lambda i: i["weight_map"].update({"model.norm.weight": "absent.safetensors"}), "absent.safetensors")
    first = next(iter(index["weight_map"].values()))
    refused(lambda i: i.update(weight_map={k: v for k, v in i["weight_map"].items() if v == first}), "has no tensor")
    index_path.unlink()
    with pytest.raises(TallyError, match="has neither model.safetensors nor"):
        ours.load(tmp_path)
    other = make_theirs("qwen2")
    other.save_pretrained(tmp_path)
    with pytest.raises(TallyError, match="model.safetensors|has no tensor|need"):
        ours.load(tmp_path)


def test_the_text_model_of_a_model_of_images_is_read(tmp_path):
    """Gemma 3 from 4B on: its config is in text_config, with only what is not the default, and names are longer."""
    theirs = make_theirs("gemma3")
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    outer = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": config,
             "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"}, "mm_tokens_per_image": 256}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    tensors = load_file(tmp_path / "model.safetensors")
    want = theirs(torch.from_numpy(tokens())).logits.detach().numpy()
    for prefix in ("language_model.model.", "model.language_model."):
        named = {prefix + name.removeprefix("model."): x for name, x in tensors.items()}
        save_file(named, tmp_path / "model.safetensors", {"format": "pt"})
        ours = Model(tmp_path)
        got = tl.model_logits(ours.module, tl.tensor(tokens())).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
    for change, word in ((dict(num_local_experts=2), "num_local_experts"),
                         (dict(tie_word_embeddings=False), "tie_word_embeddings"),
                         (dict(text_config=None), "text_config")):
        (tmp_path / "config.json").write_text(json.dumps({**outer, **change}))
        with pytest.raises(TallyError, match=word):
            Model(tmp_path)


def preset_names():
    return [name.decode() for name in iter(lambda i=itertools.count(): tl.library.tl_model_preset_name(next(i)), None)]


def test_presets_have_as_many_parameters_as_transformers_counts(tmp_path):
    """To the last digit, without their memory: on torch's meta device."""
    tl.library.tl_model_preset_name.restype = ctypes.c_char_p
    for name in preset_names():
        config = tl.model_config()
        tl.model_preset(name, config)
        tl.model_config_write(config, str(tmp_path / "config.json"))
        if name == "deep-linear":
            continue
        theirs = transformers.AutoConfig.from_pretrained(tmp_path)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(theirs)
        assert tl.model_config_parameters(config) == sum(p.numel() for p in model.parameters()), name


def test_what_a_file_leaves_out_is_what_transformers_takes(tmp_path):
    """Heads of keys and values, the size of a head, tied heads and epsilon: each family has its own."""
    least = {"hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 2, "vocab_size": 96,
             "intermediate_size": 64, "pad_token_id": None}
    experts = {"mixtral": {"num_local_experts": 8}, "gpt_oss": {"num_local_experts": 8},
               "qwen3_moe": {"num_experts": 8, "moe_intermediate_size": 64}, "olmoe": {"num_experts": 8}}
    for family in ("llama", "qwen2", "qwen3", "mistral", "olmo2", "phi3", "gemma", "gemma2", "gemma3_text",
                   "smollm3", *experts):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**least, **experts.get(family, {}), "model_type": family}))
        config = tl.model_config()
        tl.model_config_read(str(path), config)
        theirs = transformers.AutoConfig.from_pretrained(tmp_path)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(theirs)
        assert tl.model_config_parameters(config) == sum(p.numel() for p in model.parameters()), family
        assert config.norm_eps == theirs.rms_norm_eps, family
