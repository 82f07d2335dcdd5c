/* token_header.c: detects the kind of a token file, and checks its header.
 *
 * Our own format, little-endian:
 *
 *     0  "TALLYTOK"         8  u32 version (1, 2)   12  u32 bytes per token (1, 2, 4)
 *    16  u64 tokens        24  u64 vocabulary       32  u64 vocabulary hash
 *    40  u32 bytes per block (65536)                44  u32 CRC32C of the table of checksums
 *    48  u64 documents     56  u32 CRC32C of the table of documents
 *    60  u32 CRC32C of bytes 0 to 59
 *    64  tokens, then zeros up to a multiple of 8
 *        documents: the first token of each, u64
 *        one u32 CRC32C per block of token bytes (the last may be short)
 *
 * The file has exactly these bytes. The tables come after the tokens because a writer learns their lengths last.
 * Version 1 has no documents: bytes 48 to 59 are 0. It is still written where none are recorded.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/crc.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "data/token_file.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files are little-endian, and are used as they stand"
#endif

bool problem_set(struct problem *problem, tl_status status, const char *format, ...) {
    problem->status = status;
    va_list arguments;
    va_start(arguments, format);
    number_vprint(problem->text, sizeof problem->text, format, arguments);
    va_end(arguments);
    return false;
}

struct source {
    const unsigned char *data;
    size_t bytes;
    const char *path;
    struct problem *problem;
};

static uint32_t u32_at(const struct source *s, size_t at) {
    uint32_t value;
    memcpy(&value, s->data + at, sizeof value);
    return value;
}

static uint64_t u64_at(const struct source *s, size_t at) {
    uint64_t value;
    memcpy(&value, s->data + at, sizeof value);
    return value;
}

#define REFUSE(s, ...) problem_set((s)->problem, TL_ERROR_USE, "tokens: " __VA_ARGS__)

/* ---- Our own ---- */

enum { OWN_HEADER_BYTES = 64 };
static const char magic[8] = {'T', 'A', 'L', 'L', 'Y', 'T', 'O', 'K'};

static bool is_width(uint32_t bytes) { return bytes == 1 || bytes == 2 || bytes == 4; }

/* Document d begins at the d-th number, so that every document has a token and every token a document. */
static bool own_documents_check(const struct source *s, const tl_token_info *info) {
    size_t begin = (size_t)token_documents_begin(info), bytes = (size_t)info->documents * 8;
    uint32_t crc = crc32c(0, s->data + begin, bytes);
    if (crc != u32_at(s, 56))
        return REFUSE(s, "%s: byte %zu: the table of documents has the checksum %08x (byte 56 says %08x)", s->path,
                      begin, crc, u32_at(s, 56));
    uint64_t least = 0;
    for (size_t at = begin; at < begin + bytes; at += 8, least++) {
        uint64_t first = u64_at(s, at), most = at == begin ? 0 : (uint64_t)info->count - 1;
        if (first < least || first > most)
            return REFUSE(s, "%s: byte %zu: document %zu begins at token %llu (need %llu to %llu)", s->path, at,
                          (at - begin) / 8, (unsigned long long)first, (unsigned long long)least,
                          (unsigned long long)most);
        least = first;
    }
    return true;
}

static bool own_sizes_check(const struct source *s, const tl_token_info *info) {
    uint64_t count = (uint64_t)info->count, documents = (uint64_t)info->documents;
    unsigned width = (unsigned)info->token_bytes;
    if (count > s->bytes / width)
        return REFUSE(s, "%s: byte 16: %llu tokens of %u bytes do not fit a file of %zu bytes", s->path,
                      (unsigned long long)count, width, s->bytes);
    if (documents > count)
        return REFUSE(s, "%s: byte 48: %llu documents in %llu tokens (need at most one per token)", s->path,
                      (unsigned long long)documents, (unsigned long long)count);
    uint64_t data = count * width, blocks = data / TOKEN_BLOCK_BYTES + (data % TOKEN_BLOCK_BYTES != 0);
    uint64_t tables = token_documents_begin(info), need = tables + documents * 8 + blocks * 4;
    if (need != s->bytes)
        return REFUSE(s, "%s: %llu tokens of %u bytes%s make a file of %llu bytes, this one has %zu%s", s->path,
                      (unsigned long long)count, width, documents ? " and their documents" : "",
                      (unsigned long long)need, s->bytes, s->bytes < need ? " (is it cut short?)" : "");
    for (uint64_t at = OWN_HEADER_BYTES + data; at < tables; at++)
        if (s->data[at])
            return REFUSE(s, "%s: byte %llu: not 0 between tokens and checksums", s->path, (unsigned long long)at);
    uint32_t crc = crc32c(0, s->data + s->bytes - blocks * 4, blocks * 4);
    if (crc != u32_at(s, 44))
        return REFUSE(s, "%s: byte %zu: the table of checksums has the checksum %08x (byte 44 says %08x)", s->path,
                      s->bytes - (size_t)blocks * 4, crc, u32_at(s, 44));
    return own_documents_check(s, info);
}

static bool own_read(tl_token_info *info, const struct source *s) {
    if (s->bytes < OWN_HEADER_BYTES)
        return REFUSE(s, "%s: has %zu bytes (need %d for the header)", s->path, s->bytes, OWN_HEADER_BYTES);
    if (memcmp(s->data, magic, sizeof magic)) return REFUSE(s, "%s: byte 0: no \"TALLYTOK\" there", s->path);
    uint32_t crc = crc32c(0, s->data, 60), version = u32_at(s, 8), width = u32_at(s, 12);
    if (crc != u32_at(s, 60))
        return REFUSE(s, "%s: byte 60: the header has the checksum %08x, not %08x: it is damaged", s->path, crc,
                      u32_at(s, 60));
    if (version != 1 && version != 2) return REFUSE(s, "%s: byte 8: version %u (need 1 or 2)", s->path, version);
    if (!is_width(width)) return REFUSE(s, "%s: byte 12: %u bytes per token (need 1, 2 or 4)", s->path, width);
    if (u32_at(s, 40) != TOKEN_BLOCK_BYTES)
        return REFUSE(s, "%s: byte 40: blocks of %u bytes (need %d)", s->path, u32_at(s, 40), TOKEN_BLOCK_BYTES);
    if (version == 1 && (u64_at(s, 48) || u32_at(s, 56))) return REFUSE(s, "%s: byte 48: not 0 up to byte 59", s->path);
    uint64_t vocabulary = u64_at(s, 24), most = (uint64_t)token_width_limit((int)width);
    if (vocabulary == 0 || vocabulary > most)
        return REFUSE(s, "%s: byte 24: a vocabulary of %llu (need 1 to %llu with %u bytes per token)", s->path,
                      (unsigned long long)vocabulary, (unsigned long long)most, width);
    *info = (tl_token_info){.format = TL_TOKENS_TALLY,
                            .token_bytes = (int)width,
                            .has_checksums = true,
                            .count = (int64_t)u64_at(s, 16),
                            .vocabulary = (int64_t)vocabulary,
                            .vocabulary_hash = u64_at(s, 32),
                            .documents = (int64_t)u64_at(s, 48),
                            .data_begin = OWN_HEADER_BYTES};
    return own_sizes_check(s, info);
}

static void own_print(unsigned char *h, const tl_token_info *info, struct token_crcs crcs) {
    uint32_t version = info->documents ? 2 : 1, width = (uint32_t)info->token_bytes, block = TOKEN_BLOCK_BYTES;
    memcpy(h, magic, sizeof magic);
    memcpy(h + 8, &version, 4);
    memcpy(h + 12, &width, 4);
    memcpy(h + 16, &info->count, 8);
    memcpy(h + 24, &info->vocabulary, 8);
    memcpy(h + 32, &info->vocabulary_hash, 8);
    memcpy(h + 40, &block, 4);
    memcpy(h + 44, &crcs.blocks, 4);
    memcpy(h + 48, &info->documents, 8);
    memcpy(h + 56, &crcs.documents, 4);
    uint32_t crc = crc32c(0, h, 60);
    memcpy(h + 60, &crc, 4);
}

/* ---- Raw numbers and bytes ---- */

static bool raw_read(tl_token_info *info, const struct source *s, tl_token_format format, int width) {
    if (s->bytes % (size_t)width)
        return REFUSE(s, "%s: has %zu bytes, which is no whole number of tokens of %d bytes", s->path, s->bytes, width);
    *info = (tl_token_info){.format = format,
                            .token_bytes = width,
                            .count = (int64_t)(s->bytes / (size_t)width),
                            .vocabulary = width == 1 ? 256 : 0,
                            .vocabulary_hash = width == 1 ? TL_BYTES_HASH : 0};
    return true;
}

/* Raw numbers have no width. Ids of four bytes below 2^20 have an upper half below 16; of numbers of two bytes, every
 * second one would have to be below 16 for 4,096 of them. */
static bool looks_like_u32(const struct source *s) {
    size_t n = s->bytes / 4 < 4096 ? s->bytes / 4 : 4096;
    if (s->bytes % 4) return false;
    for (size_t i = 0; i < n; i++)
        if (u32_at(s, i * 4) >= (uint32_t)1 << 20) return false;
    return true;
}

/* ---- llm.c ---- */

static const struct {
    uint32_t magic, version;
    int width;
} llmc_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};
enum { LLMC_KINDS = 2, LLMC_HEADER_BYTES = 1024 };

static int llmc_kind(const struct source *s) {
    for (int k = 0; s->bytes >= 4 && k < LLMC_KINDS; k++)
        if (u32_at(s, 0) == llmc_kinds[k].magic) return k;
    return -1;
}

static bool llmc_read(tl_token_info *info, const struct source *s) {
    int kind = llmc_kind(s);
    if (kind < 0) return REFUSE(s, "%s: byte 0: not the number of an llm.c shard (20240520 or 20240801)", s->path);
    if (s->bytes < LLMC_HEADER_BYTES)
        return REFUSE(s, "%s: has %zu bytes (need %d for the header of an llm.c shard)", s->path, s->bytes,
                      LLMC_HEADER_BYTES);
    if (u32_at(s, 4) != llmc_kinds[kind].version)
        return REFUSE(s, "%s: byte 4: version %u of an llm.c shard (need %u)", s->path, u32_at(s, 4),
                      llmc_kinds[kind].version);
    uint64_t count = u32_at(s, 8), need = LLMC_HEADER_BYTES + count * (uint64_t)llmc_kinds[kind].width;
    if (count > INT32_MAX || need != s->bytes)
        return REFUSE(s, "%s: byte 8: %llu tokens of %d bytes make a file of %llu bytes, this one has %zu", s->path,
                      (unsigned long long)count, llmc_kinds[kind].width, (unsigned long long)need, s->bytes);
    *info = (tl_token_info){.format = TL_TOKENS_LLMC,
                            .token_bytes = llmc_kinds[kind].width,
                            .count = (int64_t)count,
                            .data_begin = LLMC_HEADER_BYTES};
    return true;
}

static void llmc_print(unsigned char *h, const tl_token_info *info) {
    for (int k = 0; k < LLMC_KINDS; k++)
        if (llmc_kinds[k].width == info->token_bytes)
            memcpy(h, (const uint32_t[]){llmc_kinds[k].magic, llmc_kinds[k].version, (uint32_t)info->count}, 12);
}

/* ---- NumPy ---- */

/* The header is a Python dictionary of three known keys: {'descr': '<u2', 'fortran_order': False, 'shape': (10,), }.
 * Read by exactly that grammar (any order, either quote); it is never evaluated. */
struct npy {
    const char *at, *end;
    int width; /* 0: no descr yet */
    bool is_signed, has_order, has_shape;
    int64_t count;
};

static bool npy_take(struct npy *n, const char *word) {
    while (n->at < n->end && (*n->at == ' ' || *n->at == '\n')) n->at++;
    size_t length = strlen(word);
    if ((size_t)(n->end - n->at) < length || memcmp(n->at, word, length)) return false;
    n->at += length;
    return true;
}

/* 'text' or "text" */
static bool npy_text(struct npy *n, char *to, size_t size) {
    char quote = npy_take(n, "'") ? '\'' : npy_take(n, "\"") ? '"' : 0;
    size_t length = 0;
    for (; quote && n->at < n->end && *n->at != quote; n->at++) {
        if (length + 1 >= size || *n->at < ' ' || *n->at > '~' || *n->at == '\\') return false;
        to[length++] = *n->at;
    }
    to[length] = 0;
    return quote && n->at++ < n->end;
}

static const char *npy_descr(struct npy *n) {
    char text[8];
    if (n->width || !npy_text(n, text, sizeof text)) return "a key 'descr' with a simple type, once";
    bool is_known = strlen(text) == 3 && strchr("ui", text[1]) && strchr("1248", text[2]);
    if (!is_known) return "integers (descr '<u2', '<i4', ...)";
    if (text[0] != '<' && text[2] != '1') return "little-endian numbers (descr '<...')";
    if (!strchr("<>|=", text[0])) return "a byte order in descr";
    n->width = text[2] - '0';
    n->is_signed = text[1] == 'i';
    return NULL;
}

static const char *npy_shape(struct npy *n) {
    static const char need[] = "a shape of one axis, (n,)";
    if (n->has_shape || !npy_take(n, "(")) return need;
    npy_take(n, "");
    if (n->at >= n->end || !text_is_digit(*n->at)) return need;
    for (; n->at < n->end && text_is_digit(*n->at); n->at++)
        if (!size_mul(n->count, 10, &n->count) || !size_add(n->count, *n->at - '0', &n->count))
            return "a size below 2^63";
    if (!npy_take(n, ",") || !npy_take(n, ")")) return need;
    n->has_shape = true;
    return NULL;
}

/* NULL, or the requirement that is not met. */
static const char *npy_dictionary(struct npy *n) {
    if (!npy_take(n, "{")) return "'{'";
    while (!npy_take(n, "}")) {
        char key[16];
        const char *need = NULL;
        if (!npy_text(n, key, sizeof key) || !npy_take(n, ":")) return "a key in quotes and ':'";
        if (!strcmp(key, "descr")) need = npy_descr(n);
        else if (!strcmp(key, "shape")) need = npy_shape(n);
        else if (strcmp(key, "fortran_order") || n->has_order) need = "descr, fortran_order and shape, once each";
        else if (npy_take(n, "False") || npy_take(n, "True")) n->has_order = true; /* one axis: both are the same */
        else need = "True or False";
        if (need) return need;
        if (npy_take(n, ",")) continue;
        if (!npy_take(n, "}")) return "',' or '}'";
        break;
    }
    npy_take(n, "");
    if (n->at != n->end) return "nothing behind the dictionary";
    return n->width && n->has_shape && n->has_order ? NULL : "descr, fortran_order and shape";
}

static bool npy_read(tl_token_info *info, const struct source *s) {
    if (s->bytes < 12) return REFUSE(s, "%s: has %zu bytes (need 12 for the header of .npy)", s->path, s->bytes);
    if (memcmp(s->data, "\x93NUMPY", 6)) return REFUSE(s, "%s: byte 0: not the mark of .npy", s->path);
    int major = s->data[6];
    if (major < 1 || major > 3 || s->data[7])
        return REFUSE(s, "%s: byte 6: version %d.%d of .npy (need 1.0, 2.0 or 3.0)", s->path, major, s->data[7]);
    size_t begin = major == 1 ? 10 : 12;
    size_t length = major == 1 ? (size_t)s->data[8] | (size_t)s->data[9] << 8 : u32_at(s, 8);
    if (length > 10000 || length > s->bytes - begin)
        return REFUSE(s, "%s: byte 8: a header of %zu bytes (need at most 10000, in a file of %zu)", s->path, length,
                      s->bytes);
    const char *text = (const char *)s->data + begin;
    struct npy n = {.at = text, .end = text + length};
    const char *need = npy_dictionary(&n);
    if (need)
        return REFUSE(s, "%s: byte %zu: the header of .npy needs %s", s->path, begin + (size_t)(n.at - text), need);
    int64_t data;
    if (!size_mul(n.count, n.width, &data) || (uint64_t)data != s->bytes - begin - length)
        return REFUSE(s, "%s: %lld numbers of %d bytes do not make the %zu bytes behind the header", s->path,
                      (long long)n.count, n.width, s->bytes - begin - length);
    *info = (tl_token_info){.format = TL_TOKENS_NPY,
                            .token_bytes = n.width,
                            .is_signed = n.is_signed,
                            .count = n.count,
                            .data_begin = begin + length};
    return true;
}

/* What np.save writes: version 1.0, room for 21 digits, spaces and a newline up to byte 128. */
enum { NPY_HEADER_BYTES = 128 };
static void npy_print(unsigned char *h, const tl_token_info *info) {
    memcpy(h, "\x93NUMPY\1\0\x76\0", 10);
    memset(h + 10, ' ', NPY_HEADER_BYTES - 11);
    h[NPY_HEADER_BYTES - 1] = '\n';
    char text[NPY_HEADER_BYTES - 10];
    number_print(text, sizeof text, "{'descr': '%cu%d', 'fortran_order': False, 'shape': (%lld,), }",
                 info->token_bytes == 1 ? '|' : '<', info->token_bytes, (long long)info->count);
    memcpy(h + 10, text, strlen(text));
}

/* ---- Which of them ---- */

static tl_token_format format_of(const struct source *s) {
    if (s->bytes >= sizeof magic && !memcmp(s->data, magic, sizeof magic)) return TL_TOKENS_TALLY;
    if (s->bytes >= 6 && !memcmp(s->data, "\x93NUMPY", 6)) return TL_TOKENS_NPY;
    if (llmc_kind(s) >= 0) return TL_TOKENS_LLMC;
    size_t length = strlen(s->path);
    if (length < 4 || strcmp(s->path + length - 4, ".bin")) return TL_TOKENS_BYTES;
    return looks_like_u32(s) ? TL_TOKENS_U32 : TL_TOKENS_U16;
}

bool token_header_read(tl_token_info *info, const unsigned char *data, size_t bytes, const char *path,
                       tl_token_format format, struct problem *problem) {
    struct source s = {data, bytes, path, problem};
    if (format == TL_TOKENS_AUTO) format = format_of(&s);
    bool ok = false;
    switch (format) {
    case TL_TOKENS_TALLY:
        ok = own_read(info, &s);
        break;
    case TL_TOKENS_LLMC:
        ok = llmc_read(info, &s);
        break;
    case TL_TOKENS_NPY:
        ok = npy_read(info, &s);
        break;
    case TL_TOKENS_U16:
        ok = raw_read(info, &s, format, 2);
        break;
    case TL_TOKENS_U32:
        ok = raw_read(info, &s, format, 4);
        break;
    case TL_TOKENS_BYTES:
        ok = raw_read(info, &s, format, 1);
        break;
    default:
        REFUSE(&s, "%s: no token format has the number %d", path, (int)format);
    }
    if (ok && info->count == 0) ok = REFUSE(&s, "%s: has no tokens", path);
    info->file_bytes = bytes;
    return ok;
}

size_t token_header_bytes(tl_token_format format) {
    return format == TL_TOKENS_TALLY  ? OWN_HEADER_BYTES
           : format == TL_TOKENS_LLMC ? LLMC_HEADER_BYTES
           : format == TL_TOKENS_NPY  ? NPY_HEADER_BYTES
                                      : 0;
}

void token_header_print(unsigned char *header, const tl_token_info *info, struct token_crcs crcs) {
    memset(header, 0, token_header_bytes(info->format));
    if (info->format == TL_TOKENS_TALLY) own_print(header, info, crcs);
    if (info->format == TL_TOKENS_LLMC) llmc_print(header, info);
    if (info->format == TL_TOKENS_NPY) npy_print(header, info);
}

const char *tl_token_format_name(tl_token_format format) {
    static const char *const names[] = {"auto", "tally", "u16", "u32", "llmc", "npy", "bytes"};
    return (unsigned)format < TL_TOKEN_FORMAT_COUNT ? names[format] : "?";
}
