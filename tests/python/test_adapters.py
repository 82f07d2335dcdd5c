"""Adapters against Hugging Face's peft: the same files, the same logits, the same gradients; both ways."""
import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import tally
from tally_c import TallyError, tl
from test_models import Model, make_theirs, tokens

peft = pytest.importorskip("peft")

CASES = {  # model: targets, options
    "llama": ("q_proj,v_proj", {}),
    "gpt2 in a part": ("*h.1.attn.c_attn,c_fc", {}),
    "llama with biases": ("all-linear", dict(use_dora=True)),
}


def family(case):
    return case.split(" in ")[0]


def adapt(ours, targets, use_dora=False, rank=4, alpha=6.0):
    options = tl.adapter_defaults()
    options.rank, options.alpha, options.has_magnitude, options.targets = rank, alpha, use_dora, targets.encode()
    tl.model_add_adapter(ours.module, options)


def adapters(ours):
    return {name: x for name, x in ours.tensors().items() if ".lora_" in name}


def fill(ours):
    """Numbers that change what the layers do: B begins as zeros."""
    draw = np.random.default_rng(5)
    for name, x in adapters(ours).items():
        noise = draw.normal(0, 0.2, x.shape).astype(np.float32)
        tl.copy_(tl.detach(x), tl.tensor(x.numpy() + noise if "magnitude" in name else noise))


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    targets, options = CASES[request.param]
    theirs = make_theirs(family(request.param))
    theirs.save_pretrained(tmp_path / "base")
    ours = Model(tmp_path / "base")
    adapt(ours, targets, **options)
    fill(ours)
    tl.model_save_adapter(ours.module, str(tmp_path / "adapter"), str(tmp_path / "base"))
    return ours, theirs, tmp_path


def their_logits(model, ids):
    with torch.no_grad():
        return model(torch.from_numpy(ids)).logits.numpy()


def our_logits(ours, ids):
    return tl.model_logits(ours.module, tl.tensor(ids)).numpy()


def test_peft_reads_what_we_write(case):
    ours, theirs, folder = case
    ids = tokens()
    without = their_logits(theirs, ids)
    model = peft.PeftModel.from_pretrained(theirs, folder / "adapter").eval()
    expected = their_logits(model, ids)
    assert np.abs(expected - without).max() > 1e-2
    np.testing.assert_allclose(our_logits(ours, ids), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    tl.library.tl_model_use_adapter(ours.module, False)
    np.testing.assert_allclose(our_logits(ours, ids), without, rtol=1e-5, atol=1e-5 * np.abs(without).max())


def test_gradients_are_pefts(case):
    ours, theirs, folder = case
    ids = tokens()
    targets = np.roll(ids, -1, 1)
    model = peft.PeftModel.from_pretrained(theirs, folder / "adapter", is_trainable=True)
    logits = model(torch.from_numpy(ids)).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).flatten()).backward()
    tl.backward(tl.model_loss(ours.module, tl.tensor(ids), tl.tensor(targets)), None, 0)
    found = {"base_model.model." + name: x.grad for name, x in ours.tensors().items()}
    expected = {name.replace(".default", "").removesuffix(".weight") if "magnitude" in name
                else name.replace(".default", ""): p.grad for name, p in model.named_parameters() if p.requires_grad}
    assert sum(x is not None for x in found.values()) == len(expected) > 2
    for name, grad in expected.items():
        scale = grad.abs().max().item()
        np.testing.assert_allclose(found[name].numpy(), grad.numpy(), rtol=1e-5, atol=1e-5 * scale, err_msg=name)


def test_we_read_what_peft_writes(case, tmp_path_factory):
    ours, theirs, folder = case
    config = peft.LoraConfig(r=3, lora_alpha=7, target_modules=json.loads(
        (folder / "adapter" / "adapter_config.json").read_text())["target_modules"], use_dora=True,
        task_type="CAUSAL_LM", fan_in_fan_out=theirs.config.model_type == "gpt2")
    model = peft.get_peft_model(theirs, config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.add_(0.1 * torch.randn_like(p))
    model.eval().save_pretrained(folder / "theirs")
    ids, other = tokens(), Model(folder / "base")
    tl.model_load_adapter(other.module, str(folder / "theirs"))
    expected = their_logits(model, ids)
    np.testing.assert_allclose(our_logits(other, ids), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    # merged, and written as a whole model
    tl.model_merge_adapter(other.module)
    assert not adapters(other)
    np.testing.assert_allclose(our_logits(other, ids), expected, rtol=1e-4, atol=1e-4)
    tl.model_save(other.module, str(folder / "merged"))
    import transformers
    merged = transformers.AutoModelForCausalLM.from_pretrained(folder / "merged").eval()
    np.testing.assert_allclose(their_logits(merged, ids), expected, rtol=1e-4, atol=1e-4)


def test_a_run_goes_on_from_pefts_adapter(tmp_path):
    """With a learning rate of nothing, final/ has PEFT's own bits; with another, PEFT reads what was learned."""
    import transformers
    theirs, small = make_theirs("llama"), dict(
        model=str(tmp_path / "base"), adapter=str(tmp_path / "theirs"), batch=2, seq=16, steps=3, stories=300000,
        sample_tokens=0, eval_batches=1, optimizer="sgd", weight_decay=0.0, schedule="constant", warmup=0, clip=0.0)
    theirs.resize_token_embeddings(256)
    theirs.save_pretrained(tmp_path / "base")
    model = peft.get_peft_model(theirs, peft.LoraConfig(r=3, lora_alpha=7, target_modules=["q_proj", "up_proj"],
                                                        lora_dropout=0.25, use_dora=True, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.add_(0.1 * torch.randn_like(p))
    model.save_pretrained(tmp_path / "theirs")
    start = load_file(tmp_path / "theirs/adapter_model.safetensors")
    for lr in (1e-30, 0.1):
        summary = tally.train(out=str(tmp_path / f"run {lr}"), lr=lr, **small)
        assert summary["end"] == "done" and summary["differences"] == 0
        final = load_file(tmp_path / f"run {lr}/final/adapter_model.safetensors")
        assert {name: x.shape for name, x in final.items()} == {name: x.shape for name, x in start.items()}
        assert all(np.array_equal(final[name], start[name]) for name in start) == (lr < 1e-3)
    config = json.loads((tmp_path / "run 0.1/final/adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["lora_dropout"], config["use_dora"]) == (3, 7, 0.25, True)
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    learned = peft.PeftModel.from_pretrained(base, tmp_path / "run 0.1/final").eval()
    ids, ours = tokens(), Model(tmp_path / "base")
    tl.model_load_adapter(ours.module, str(tmp_path / "run 0.1/final"))
    tl.library.tl_module_train(ours.module, False)
    np.testing.assert_allclose(our_logits(ours, ids), their_logits(learned, ids), rtol=1e-4, atol=1e-4)
    with pytest.raises(RuntimeError, match="has rank 3"):
        tally.train(out=str(tmp_path / "other"), lora=8, **small)


def test_a_fresh_adapter_changes_nothing_but_what_is_trained(tmp_path):
    theirs = make_theirs("llama")
    theirs.save_pretrained(tmp_path)
    plain, ours = Model(tmp_path), Model(tmp_path)
    adapt(ours, "all-linear", use_dora=True)
    assert np.abs(our_logits(plain, tokens()) - our_logits(ours, tokens())).max() < 1e-5
    assert {tl.needs_grad(x) for x in adapters(ours).values()} == {True}
    assert not any(tl.needs_grad(x) for name, x in ours.tensors().items() if ".lora_" not in name)


def test_wrong_adapters_are_refused_by_name(tmp_path):
    make_theirs("llama").save_pretrained(tmp_path / "base")
    make_theirs("gpt2").save_pretrained(tmp_path / "gpt2")
    ours, other = Model(tmp_path / "base"), Model(tmp_path / "gpt2")
    for targets, words in [("q_proj,x_proj", '"x_proj" matches no linear layer'), ("lm_head", "matches no linear"),
                           (" ,", "no targets")]:
        with pytest.raises(TallyError, match=words):
            adapt(ours, targets)
    with pytest.raises(TallyError, match="none to save"):
        tl.model_save_adapter(ours.module, str(tmp_path / "a"), None)
    adapt(ours, "q_proj")
    with pytest.raises(TallyError, match="already"):
        adapt(ours, "q_proj")
    with pytest.raises(TallyError, match="tl_model_merge_adapter"):
        tl.model_save(ours.module, str(tmp_path / "b"))
    tl.model_save_adapter(ours.module, str(tmp_path / "a"), None)
    with pytest.raises(TallyError, match="has no adapter of a layer of this model"):
        tl.model_load_adapter(other.module, str(tmp_path / "a"))
    config = json.loads((tmp_path / "a" / "adapter_config.json").read_text())

    def refused(words, **changes):
        (tmp_path / "a" / "adapter_config.json").write_text(json.dumps({**config, **changes}))
        fresh = Model(tmp_path / "base")
        with pytest.raises(TallyError, match=words):
            tl.model_load_adapter(fresh.module, str(tmp_path / "a"))
        assert not adapters(fresh)

    refused('peft_type is "IA3"', peft_type="IA3")
    refused('"use_rslora" has a value', use_rslora=True)
    refused('"modules_to_save" has a value', modules_to_save=["lm_head"])
    refused('"rank_pattern" has a value', rank_pattern={"q_proj": 2})
    refused('"bias" has a value', bias="all")
    refused("is .*f32.* \\(need", r=5)
    refused("rank 0", r=0)
    refused("rank 99999999", r=99999999)
    refused("alpha", lora_alpha=-1)
    refused("need peft_type, r and lora_alpha", r="8")
    refused("has no tensor", use_dora=True)
    (tmp_path / "a" / "adapter_config.json").write_text("[]")
    with pytest.raises(TallyError, match="not a JSON object"):
        tl.model_load_adapter(other.module, str(tmp_path / "a"))
