"""GGUF beside the package gguf: each reads what the other wrote, Q8_0 has the same bytes, and exported
models have the names, layouts, metadata and vocabulary that llama.cpp expects, and come back."""
import ctypes
import json

import ml_dtypes
import numpy as np
import pytest

import tally
import vocabularies
from tally_c import TallyError, tl

gguf = pytest.importorskip("gguf", reason="the package gguf is not there")

LONGS = ctypes.POINTER(ctypes.c_int64)
TYPES = ["F32", "F16", "BF16", "Q8_0"]
NUMPY = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}


def tensors_of(path):
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


def decoded(tensor):
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type)


def random_values(shape, seed):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape, dtype=np.float32) * np.exp(rng.uniform(-12, 9, (shape[0], 1))).astype("f4")
    values[0] = 0
    values[1, ::3] = np.round(values[1, ::3])
    return values.astype(np.float32)


def save(path, tensors):
    writer = tl.gguf_writer_new()
    for name, (x, kind) in tensors.items():
        tl.gguf_writer_tensor(writer, name, x, TYPES.index(kind))
    tl.gguf_writer_save(writer, str(path))
    tl.gguf_writer_free(writer)


def test_the_package_reads_equal_bytes(tmp_path):
    values = random_values((20, 96), 1)
    x = tl.tensor(values)
    save(tmp_path / "x.gguf", {kind: (x, kind) for kind in TYPES})
    theirs = tensors_of(tmp_path / "x.gguf")
    for kind in TYPES[:3]:
        expected = values.astype(NUMPY[kind]).view(np.uint8).reshape(-1)
        assert np.array_equal(np.asarray(theirs[kind].data).reshape(-1).view(np.uint8), expected), kind
    assert np.array_equal(theirs["Q8_0"].data, gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0))


def test_files_of_the_package_are_read(tmp_path):
    values = random_values((8, 64), 2)
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("a.number", 7)
    writer.add_float64("a.double", 1e-300)
    writer.add_bool("a.truth", True)
    writer.add_array("a.words", ["x", "ä", ""])
    writer.add_array("a.numbers", [1, -2, 3])
    writer.add_int8("an.i8", -128)
    writer.add_uint64("a.u64", 2**63)
    writer.add_tensor("f32", values)
    writer.add_tensor("f16", values.astype(np.float16))
    writer.add_tensor("q8", gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0),
                      raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q4", gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q4_0),
                      raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = tl.gguf_open(str(path))
    assert tl.gguf_text(file, "general.architecture", 0) == b"llama"
    assert [tl.gguf_text(file, "a.words", i).decode() for i in range(3)] == ["x", "ä", ""]
    number, real = ctypes.c_int64(), ctypes.c_double()
    real_at = ctypes.byref(real)
    for key, i, expected in [("a.number", 0, 7), ("a.truth", 0, 1), ("a.numbers", 1, -2), ("an.i8", 0, -128)]:
        assert tl.gguf_integer(file, key, i, number) and number.value == expected, key
    assert not tl.gguf_integer(file, "a.u64", 0, number)
    assert tl.gguf_number(file, "a.double", 0, real_at) and real.value == 1e-300
    theirs = tensors_of(path)
    for name in ("f32", "f16", "q8"):
        assert np.array_equal(tl.gguf_get(file, name).numpy(), decoded(theirs[name])), name
    with pytest.raises(TallyError, match="its type Q4_0 can be listed but not read"):
        tl.gguf_get(file, "q4")
    tl.gguf_close(file)


def test_types_are_those_of_the_package(tmp_path):
    """Every type of the package is known here with its block and bytes: a row of one block is opened and listed."""
    for kind, (block, size) in gguf.GGML_QUANT_SIZES.items():
        path = tmp_path / f"{kind.name}.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_tensor("x", np.zeros((2, size), np.uint8), raw_shape=(2, size), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        file = tl.gguf_open(str(path))
        info = tl.gguf_info()
        assert tl.gguf_info_at(file, 0, info), kind.name
        assert (info.type.decode(), info.bytes, ctypes.cast(info.shape, LONGS)[1]) == (kind.name, 2 * size, block)
        tl.gguf_close(file)


# ---- Models

SIZES = dict(vocab_size=300, initializer_range=0.2)
LLAMA = dict(SIZES, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 32}
WORDS = ["<|endoftext|>", *(chr(c) for c in range(33, 127)), "\u0120", "\u010a", "\u0120t", "he", "\u0120the"]
MERGES = ["\u0120 t", "h e", "\u0120t he"]


def model_of(family, folder):
    transformers = pytest.importorskip("transformers", reason="the package transformers is not there")
    torch = pytest.importorskip("torch", reason="PyTorch is not there")
    torch.manual_seed(1)
    t, tied = transformers, dict(LLAMA, tie_word_embeddings=True)
    model = {
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(n_positions=64, n_embd=64, n_layer=2, n_head=4, **SIZES)),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(tie_word_embeddings=False, head_dim=32, **LLAMA)),
        "llama3": lambda: t.LlamaForCausalLM(t.LlamaConfig(rope_scaling=SCALING, **tied)),
        "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(sliding_window=None, **tied)),
        "qwen3": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(head_dim=16, **tied)),
        "olmo2": lambda: t.Olmo2ForCausalLM(t.Olmo2Config(**tied)),
        "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(use_sliding_window=False, **tied)),
    }[family]()
    for p in model.parameters():  # norms of 1 and biases of 0 would hide a mistake
        p.data += 0.1 * torch.randn(p.shape)
    model.save_pretrained(folder)
    return {k: v.numpy() for k, v in model.state_dict().items()}, tl.model_open(str(folder), None)


def permuted(weights, heads):
    """As llama.cpp's converter does it."""
    return (weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:]).swapaxes(1, 2)
            .reshape(weights.shape))


def logits_of(model):
    tokens = tl.tensor(np.arange(0, 290, 7, dtype=np.int64).reshape(1, -1))
    with tl.no_grad():
        return tl.model_logits(model, tokens).numpy()


def exported(model, path, kind="F32", tokenizer=None):
    tl.model_export_gguf(model, str(path), TYPES.index(kind), tokenizer, None)
    return gguf.GGUFReader(path)


@pytest.mark.parametrize("family", ["gpt2", "llama", "llama3", "mistral", "qwen2", "qwen3", "olmo2"])
def test_exported_models_have_llama_cpps_names_and_layout(family, tmp_path):
    weights, model = model_of(family, tmp_path / "model")
    reader = exported(model, tmp_path / "model.gguf")
    arch = {"llama3": "llama", "mistral": "llama"}.get(family, family)
    assert reader.fields["general.architecture"].contents() == arch
    kind = getattr(gguf.MODEL_ARCH, arch.upper())
    names = gguf.get_tensor_name_map(kind, 2)
    expected = {}
    for name, value in weights.items():
        if name == "lm_head.weight" and family != "llama":
            continue  # tied
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if ".c_" in name and name.endswith("weight"):
            value = value.T
        if arch == "llama" and (".q_proj." in name or ".k_proj." in name):
            value = permuted(value, 4 if ".q_proj." in name else 2)
        expected[new] = value
    if family == "llama3":
        inverse = 10000.0 ** (np.arange(0, 16, 2) / 16)
        turns = 32 / (2 * np.pi * inverse)
        smooth = np.clip((turns - 1) / 3, 0, 1)
        expected["rope_freqs.weight"] = (1 / ((1 - smooth) / 8 + smooth)).astype(np.float32)
    ours = {t.name: t for t in reader.tensors}
    assert sorted(ours) == sorted(expected)
    for name, value in expected.items():
        data = np.asarray(ours[name].data)
        assert data.shape == value.shape, name
        assert np.allclose(data, value, rtol=1e-6, atol=0) if name.startswith("rope") else np.array_equal(data, value)
    sizes = {"block_count": 2, "context_length": 64, "embedding_length": 64, "attention.head_count": 4,
             "vocab_size": 300, "feed_forward_length": 256 if family == "gpt2" else 96}
    if family != "gpt2":
        sizes |= {"attention.head_count_kv": 2, "rope.dimension_count": 32 if family == "llama" else 16,
                  "attention.key_length": 32 if family == "llama" else 16, "rope.freq_base": 10000.0}
    for key, value in sizes.items():
        assert reader.fields[f"{arch}.{key}"].contents() == value, key
    again = tl.model_open(str(tmp_path / "model.gguf"), None)
    assert np.array_equal(logits_of(again), logits_of(model))
    tl.module_free(again)
    tl.module_free(model)


def test_types_of_exported_matrices(tmp_path):
    _, model = model_of("gpt2", tmp_path / "model")
    logits = logits_of(model)
    for kind, number, error in [("F16", 1, 0.05), ("BF16", 32, 0.4), ("Q8_0", 7, 0.4)]:
        reader = exported(model, tmp_path / "model.gguf", kind)
        assert reader.fields["general.file_type"].contents() == number
        for t in reader.tensors:
            is_matrix = len(t.shape) > 1 and not t.name.startswith("position")
            assert t.tensor_type.name == (kind if is_matrix else "F32"), t.name
        again = tl.model_open(str(tmp_path / "model.gguf"), None)
        worst = np.abs(logits_of(again) - logits).max()
        assert 0 < worst < error * np.abs(logits).max(), (kind, worst)
        tl.module_free(again)
    tl.module_free(model)


def test_tokenizers_are_exported(tmp_path):
    _, model = model_of("gpt2", tmp_path / "model")
    (tmp_path / "vocab.json").write_text(json.dumps({w: i for i, w in enumerate(WORDS)}), encoding="utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(MERGES) + "\n", encoding="utf-8")
    tokenizer = tl.tokenizer_read(str(tmp_path / "vocab.json"), None)
    fields = exported(model, tmp_path / "model.gguf", tokenizer=tokenizer).fields
    tl.tokenizer_free(tokenizer)
    get = {k.removeprefix("tokenizer.ggml."): v.contents() for k, v in fields.items() if k.startswith("tokenizer")}
    n = len(WORDS)
    assert get["model"] == "gpt2" and get["pre"] == "gpt-2"
    assert get["tokens"] == WORDS + [f"[PAD{i}]" for i in range(n, 300)]
    assert get["token_type"][:n + 1] == [3] + [1] * (n - 1) + [5] and len(get["token_type"]) == 300
    assert get["merges"] == MERGES
    assert (get["bos_token_id"], get["eos_token_id"], get["add_bos_token"]) == (0, 0, False)
    bytes_only = tl.tokenizer_bytes()
    fields = exported(model, tmp_path / "model.gguf", tokenizer=bytes_only).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    assert tokens[65] == "A" and tokens[32] == "\u0120" and tokens[0] == "\u0100" and len(set(tokens)) == 300
    fields = exported(model, tmp_path / "model.gguf").fields
    assert fields["tokenizer.ggml.model"].contents() == "no_vocab"
    characters = tl.tokenizer_chars(b"abc", 3)
    with pytest.raises(TallyError, match="not byte-level BPE"):
        exported(model, tmp_path / "x.gguf", tokenizer=characters)
    assert not (tmp_path / "x.gguf").exists()
    for t in (bytes_only, characters):
        tl.tokenizer_free(t)
    tl.module_free(model)


@pytest.mark.parametrize("kind, pre", [("ranks", "gpt-2"), ("gpt2", "gpt-2"), ("llama3", "llama-bpe"),
                                       ("qwen", "qwen2"), ("o200k_base", "gpt-4o")])
def test_vocabularies_are_exported_as_tokenizer_json_has_them(kind, pre, tmp_path):
    transformers = pytest.importorskip("transformers", reason="the package transformers is not there")
    path = vocabularies.get("p50k_base.tiktoken") if kind == "ranks" else None  # a real one; others are learnt here
    ours = tally.Tokenizer(path) if path else tally.Tokenizer.train_from_texts(
        vocabularies.mixed(30_000), 900, encoding=kind, special_tokens=["<|endoftext|>", "<|im_end|>"])
    ours.save(tmp_path)
    config = transformers.GPT2Config(vocab_size=len(ours) + 3, n_positions=8, n_embd=8, n_layer=1, n_head=1)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "model")
    model = tl.model_open(str(tmp_path / "model"), None)
    saved = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = {id: token for token, id in saved["model"]["vocab"].items()}
    special = {token["id"] for token in saved["added_tokens"]}
    tokenizer = tl.tokenizer_read(str(path or tmp_path / "tokenizer.json"), None)
    fields = exported(model, tmp_path / "model.gguf", kind="F16", tokenizer=tokenizer).fields
    tl.tokenizer_free(tokenizer)
    tl.module_free(model)
    get = {k.removeprefix("tokenizer.ggml."): v.contents() for k, v in fields.items() if k.startswith("tokenizer")}
    assert (get["model"], get["pre"]) == ("gpt2", pre)
    assert get["tokens"] == [tokens.get(i, f"[PAD{i}]") for i in range(len(ours) + 3)]
    assert get["token_type"] == [3 if i in special else 1 if i in tokens else 5 for i in range(len(ours) + 3)]
    assert get["merges"] == [" ".join(pair) for pair in saved["model"]["merges"]]
    assert len(get["merges"]) == len(ours) - (257 if path else 258)
