/* token_writer.c: token files are written whole or not at all, and converted from one format to another.
 *
 * Every format is a header, then the tokens; Tally's has tables of documents and of checksums behind them. The header
 * holds the number of tokens, which is known last, so its place is filled with zeros first and written over at the end.
 * A corpus may have a billion documents, so their table waits in a temporary file, not in memory.
 */
#include <string.h>

#include "base/crc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/token_file.h"

enum { DOCUMENTS_AT_ONCE = 1024 };
struct tl_token_writer {
    struct file_writer *file;
    tl_token_info info; /* count: tokens so far */
    uint32_t *table;    /* checksums of the blocks written; Tally's format only */
    size_t n_blocks, capacity;
    struct file_writer *documents; /* the table, never committed; NULL: none so far */
    size_t n_begins;               /* in `begins`, not written yet */
    bool is_begun;                 /* the next token begins a document */
    bool is_finished;
    size_t used; /* bytes of block */
    uint64_t begins[DOCUMENTS_AT_ONCE];
    unsigned char block[TOKEN_BLOCK_BYTES];
};

static bool zeros_write(tl_token_writer *w, size_t bytes) {
    static const unsigned char zeros[TOKEN_HEADER_MOST];
    return file_writer_write(w->file, zeros, bytes);
}

/* Takes the file (NULL: its error is recorded). `info` has the format, token_bytes, vocabulary and vocabulary_hash. */
static tl_token_writer *writer_new(struct file_writer *file, const tl_token_info *info, bool is_continued) {
    tl_token_writer *w = file ? memory_new(sizeof *w) : NULL;
    if (!w) {
        if (file) error_memory(sizeof *w, "a writer of tokens");
        file_writer_discard(file);
        return NULL;
    }
    memset(w, 0, offsetof(struct tl_token_writer, begins));
    w->info = *info;
    w->file = file;
    if (is_continued || zeros_write(w, token_header_bytes(info->format))) return w; /* the header comes last */
    tl_token_writer_discard(w);
    return NULL;
}

/* False: recorded. */
static bool width_check(struct file_place at, int token_bytes, int64_t vocabulary) {
    bool is_width = token_bytes == 1 || token_bytes == 2 || token_bytes == 4;
    int64_t most = is_width ? token_width_limit(token_bytes) : 0;
    char path[FILE_TEXT];
    return (is_width && vocabulary >= 1 && vocabulary <= most) ||
           error_set(TL_ERROR_USE,
                     "token_writer_new: %s: %d bytes per token (need 1, 2 or 4), vocabulary %lld (need 1 to %lld)",
                     file_text(at, path), token_bytes, (long long)vocabulary, (long long)most);
}

tl_token_writer *token_writer_at(struct file_place at, int token_bytes, int64_t vocabulary, uint64_t hash) {
    if (!width_check(at, token_bytes, vocabulary)) return NULL;
    tl_token_info info = {
        .format = TL_TOKENS_TALLY, .token_bytes = token_bytes, .vocabulary = vocabulary, .vocabulary_hash = hash};
    return writer_new(file_writer_at(at), &info, false);
}

tl_token_writer *tl_token_writer_new(const char *path, int token_bytes, int64_t vocabulary, uint64_t hash) {
    if (!path) return error_set(TL_ERROR_USE, "token_writer_new: no path"), NULL;
    return token_writer_at(file_path(path), token_bytes, vocabulary, hash);
}

static bool block_write(tl_token_writer *w) {
    bool has_table = w->info.format == TL_TOKENS_TALLY;
    if (has_table && !memory_grow((void **)&w->table, &w->capacity, w->n_blocks, sizeof *w->table))
        return error_memory((w->n_blocks + 1) * sizeof *w->table, "the checksums of a token file");
    if (has_table) w->table[w->n_blocks++] = crc32c(0, w->block, w->used);
    bool ok = file_writer_write(w->file, w->block, w->used);
    w->used = 0;
    return ok;
}

/* ---- Documents ---- */

bool tl_token_writer_document(tl_token_writer *w) {
    if (!w) return tl_error() == TL_OK ? error_set(TL_ERROR_USE, "token_writer_document: no writer") : false;
    if (w->info.count && !w->info.documents)
        return error_set(TL_ERROR_USE, "token_writer_document: %lld tokens are before the first document (need none)",
                         (long long)w->info.count);
    w->is_begun = true;
    return true;
}

static bool begins_write(tl_token_writer *w) {
    if (!w->documents && !(w->documents = file_writer_scratch(w->file))) return false;
    bool ok = file_writer_write(w->documents, w->begins, w->n_begins * sizeof *w->begins);
    w->n_begins = 0;
    return ok;
}

static bool document_put(tl_token_writer *w) {
    if (w->n_begins == DOCUMENTS_AT_ONCE && !begins_write(w)) return false;
    w->begins[w->n_begins++] = (uint64_t)w->info.count;
    w->info.documents++;
    w->is_begun = false;
    return true;
}

int64_t token_writer_documents(const tl_token_writer *w) { return w->info.documents; }

/* Appends the table to the file. */
static bool documents_write(tl_token_writer *w, uint32_t *crc) {
    size_t all = (size_t)w->info.documents, waiting = w->n_begins, done = 0;
    if (w->documents && !begins_write(w)) return false;
    while (done < all) {
        size_t n = w->documents && all - done > DOCUMENTS_AT_ONCE ? DOCUMENTS_AT_ONCE : all - done;
        if (w->documents && !file_writer_read(w->documents, w->begins, n * 8, done * 8)) return false;
        *crc = crc32c(*crc, w->begins, n * 8);
        if (!file_writer_write(w->file, w->begins, n * 8)) return false;
        done += n;
    }
    INVARIANT(w->documents || waiting == all);
    return true;
}

/* ---- Tokens ---- */

/* Negative ids are huge as unsigned numbers. */
static bool ids_check(const tl_token_writer *w, const int32_t *ids, int64_t n) {
    const uint64_t limit = (uint64_t)w->info.vocabulary;
    bool is_bad = false;
    for (int64_t i = 0; i < n; i++) is_bad |= (uint32_t)ids[i] >= limit;
    if (!is_bad) return true;
    int64_t at = 0;
    while ((uint32_t)ids[at] < limit) at++;
    return error_set(TL_ERROR_USE, "token_writer_add: token %lld is %d (need 0 to %lld)",
                     (long long)(w->info.count + at), ids[at], (long long)w->info.vocabulary - 1);
}

static void ids_pack(unsigned char *to, const int32_t *ids, int64_t n, int width) {
    if (width == 4) memcpy(to, ids, (size_t)n * 4);
    for (int64_t i = 0; width == 2 && i < n; i++) memcpy(to + 2 * i, &(uint16_t){(uint16_t)ids[i]}, 2);
    for (int64_t i = 0; width == 1 && i < n; i++) to[i] = (unsigned char)ids[i];
}

bool tl_token_writer_add(tl_token_writer *w, const int32_t *ids, int64_t n) {
    if (!w || (!ids && n) || n < 0) {
        if (tl_error() == TL_OK) error_set(TL_ERROR_USE, "token_writer_add: no writer or no ids");
        return false;
    }
    if (n && w->is_begun && !document_put(w)) return false;
    int width = w->info.token_bytes;
    for (int64_t done = 0; done < n;) {
        int64_t room = (int64_t)(TOKEN_BLOCK_BYTES - w->used) / width, some = n - done < room ? n - done : room;
        if (!ids_check(w, ids + done, some)) return false;
        ids_pack(w->block + w->used, ids + done, some, width);
        w->used += (size_t)(some * width);
        w->info.count += some;
        done += some;
        if (w->used == TOKEN_BLOCK_BYTES && !block_write(w)) return false;
    }
    return true;
}

/* What comes behind the tokens in Tally's format: zeros to a multiple of 8, documents, and checksums. */
static bool tables_write(tl_token_writer *w, struct token_crcs *crcs) {
    size_t rest = (size_t)(w->info.count * w->info.token_bytes % 8);
    crcs->blocks = crc32c(0, w->table, w->n_blocks * 4);
    return (rest == 0 || zeros_write(w, 8 - rest)) && documents_write(w, &crcs->documents) &&
           file_writer_write(w->file, w->table, w->n_blocks * 4);
}

static bool header_write(tl_token_writer *w, struct token_crcs crcs) {
    unsigned char header[TOKEN_HEADER_MOST];
    size_t bytes = token_header_bytes(w->info.format);
    if (!bytes) return true;
    token_header_print(header, &w->info, crcs);
    return file_writer_patch(w->file, header, bytes, 0);
}

bool token_writer_finish(tl_token_writer *w) {
    if (tl_error() != TL_OK) return false; /* a failed write must not become a file */
    if (w->info.count == 0)
        return error_set(TL_ERROR_USE, "token_writer_commit: no tokens were added (need at least one)");
    struct token_crcs crcs = {0};
    w->is_finished = (w->used == 0 || block_write(w)) &&
                     (w->info.format != TL_TOKENS_TALLY || tables_write(w, &crcs)) && header_write(w, crcs) &&
                     file_writer_sync(w->file);
    return w->is_finished;
}

bool tl_token_writer_commit(tl_token_writer *w) {
    if (!w) return tl_error() == TL_OK ? error_set(TL_ERROR_USE, "token_writer_commit: no writer") : false;
    bool ok = w->is_finished || token_writer_finish(w);
    if (ok) {
        ok = file_writer_commit(w->file);
        w->file = NULL;
    }
    tl_token_writer_discard(w);
    return ok;
}

void tl_token_writer_discard(tl_token_writer *w) {
    if (!w) return;
    file_writer_discard(w->file);
    file_writer_discard(w->documents);
    memory_free(w->table);
    memory_free(w);
}

/* ---- Writers that another process continues ---- */

/* The checksums of whole blocks, and the bytes of the last, which is not. */
static bool blocks_read(tl_token_writer *w, size_t bytes, const char *path, uint32_t crc) {
    size_t header = token_header_bytes(w->info.format);
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < TOKEN_BLOCK_BYTES ? bytes - done : TOKEN_BLOCK_BYTES;
        if (!file_writer_read(w->file, w->block, n, header + done)) return false;
        w->used = n < TOKEN_BLOCK_BYTES ? n : 0;
        if (w->used) break;
        if (!memory_grow((void **)&w->table, &w->capacity, w->n_blocks, sizeof *w->table))
            return error_memory((w->n_blocks + 1) * sizeof *w->table, "the checksums of a token file");
        w->table[w->n_blocks++] = crc32c(0, w->block, n);
    }
    uint32_t got = crc32c(0, w->table, w->n_blocks * 4);
    if (got != crc)
        return error_set(TL_ERROR_USE,
                         "tokens: %s" TOKEN_PARTIAL ": is damaged: its checksums have the checksum %08x, expected %08x",
                         path, got, crc);
    return file_writer_back(w->file, header + w->n_blocks * TOKEN_BLOCK_BYTES);
}

tl_token_writer *token_writer_kept(const char *path, int token_bytes, int64_t vocabulary, uint64_t hash,
                                   const struct token_position *from) {
    if (!width_check(file_path(path), token_bytes, vocabulary)) return NULL;
    size_t data = (size_t)from->count * (size_t)token_bytes, header = token_header_bytes(TL_TOKENS_TALLY);
    tl_token_info info = {
        .format = TL_TOKENS_TALLY, .token_bytes = token_bytes, .vocabulary = vocabulary, .vocabulary_hash = hash};
    struct file_writer *file = file_writer_kept(path, TOKEN_PARTIAL, from->count ? header + data : 0);
    tl_token_writer *w = writer_new(file, &info, from->count > 0);
    if (!w) return NULL;
    w->documents = file_writer_kept(path, TOKEN_PARTIAL_DOCUMENTS, (size_t)from->documents * 8);
    w->info.count = from->count;
    w->info.documents = from->documents;
    w->is_begun = from->is_begun;
    if (w->documents && blocks_read(w, data, path, from->crc)) return w;
    tl_token_writer_discard(w);
    return NULL;
}

bool token_writer_save(tl_token_writer *w, struct token_position *at) {
    size_t end = token_header_bytes(w->info.format) + w->n_blocks * TOKEN_BLOCK_BYTES;
    if (!begins_write(w) || !file_writer_patch(w->file, w->block, w->used, end) || !file_writer_sync(w->documents) ||
        !file_writer_sync(w->file))
        return false;
    *at = (struct token_position){.count = w->info.count,
                                  .documents = w->info.documents,
                                  .crc = crc32c(0, w->table, w->n_blocks * 4),
                                  .is_begun = w->is_begun};
    return true;
}

/* ---- Converting ---- */

/* Bytes per token of the new file. Where the format has a choice, the vocabulary decides, or else the old file. */
static int width_for(tl_token_format format, const tl_token_info *from, int64_t vocabulary) {
    if (format == TL_TOKENS_BYTES) return 1;
    if (format == TL_TOKENS_U16) return 2;
    if (format == TL_TOKENS_U32) return 4;
    int width = !vocabulary ? from->token_bytes : vocabulary <= 256 ? 1 : vocabulary <= 65536 ? 2 : 4;
    if (format == TL_TOKENS_LLMC && width < 2) return 2;
    return width < 4 ? width : 4;
}

/* What the new file says about itself; its vocabulary is the limit of what fits. */
static bool target_of(tl_token_info *to, const tl_token_file *f, const char *path, tl_token_format format,
                      int64_t vocabulary) {
    tl_token_info from;
    tl_token_file_info(f, &from);
    if (format <= TL_TOKENS_AUTO || format >= TL_TOKEN_FORMAT_COUNT)
        return error_set(TL_ERROR_USE, "token_file_convert: %s: %s is no format of a file", path,
                         tl_token_format_name(format));
    if (from.vocabulary) vocabulary = from.vocabulary;
    if (format == TL_TOKENS_TALLY && !vocabulary)
        return error_set(TL_ERROR_USE, "tokens: %s: does not say its vocabulary, which Tally's format records",
                         token_file_path(f));
    if (format == TL_TOKENS_LLMC && from.count > INT32_MAX)
        return error_set(TL_ERROR_USE, "tokens: %s: has %lld tokens (an llm.c shard has at most %d)",
                         token_file_path(f), (long long)from.count, INT32_MAX);
    *to = (tl_token_info){
        .format = format, .token_bytes = width_for(format, &from, vocabulary), .vocabulary_hash = from.vocabulary_hash};
    int64_t most = token_width_limit(to->token_bytes);
    to->vocabulary = format == TL_TOKENS_TALLY ? vocabulary : most;
    return true;
}

static bool ids_fit(const tl_token_file *f, const tl_token_info *to, const int32_t *ids, int64_t from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= to->vocabulary)
            return error_set(TL_ERROR_USE,
                             "tokens: %s: token %lld is %d, which does not fit %s (need 0 to %lld; use %s)",
                             token_file_path(f), (long long)(from + i), ids[i], tl_token_format_name(to->format),
                             (long long)to->vocabulary - 1, ids[i] < 65536 ? "u16" : "u32");
    return true;
}

/* Copies tokens from .. from + n - 1, which do not cross the beginning of a document. */
static bool some_copy(tl_token_file *f, tl_token_writer *w, int32_t *ids, int64_t from, int64_t n) {
    return tl_token_file_read(f, ids, from, n) && ids_fit(f, &w->info, ids, from, n) && tl_token_writer_add(w, ids, n);
}

static bool tokens_copy(tl_token_file *f, tl_token_writer *w, tl_progress_fn progress, void *context) {
    enum { AT_ONCE = 1 << 16 };
    tl_token_info info;
    int32_t *ids = memory_new(AT_ONCE * sizeof *ids);
    bool ok = ids ? tl_token_file_info(f, &info) : error_memory(AT_ONCE * sizeof *ids, "converting a token file");
    bool has_documents = ok && info.documents && w->info.format == TL_TOKENS_TALLY;
    for (int64_t from = 0, document = 0, end, n; ok && from < info.count; from += n) {
        if (has_documents && from == tl_token_file_document_begin(f, document)) {
            ok = tl_token_writer_document(w);
            document++;
        }
        end = has_documents ? tl_token_file_document_begin(f, document) : info.count;
        n = end - from < AT_ONCE ? end - from : AT_ONCE;
        ok = ok && some_copy(f, w, ids, from, n);
        if (ok && progress && !progress((uint64_t)(from + n), (uint64_t)info.count, context))
            ok = error_set(TL_ERROR_USE, "tokens: %s: stopped", token_file_path(f));
    }
    memory_free(ids);
    return ok;
}

bool tl_token_file_convert(tl_token_file *f, const char *path, tl_token_format format, int64_t vocabulary,
                           tl_progress_fn progress, void *context) {
    if (!f || !path)
        return tl_error() == TL_OK ? error_set(TL_ERROR_USE, "token_file_convert: no %s", f ? "path" : "file") : false;
    tl_token_info to;
    if (vocabulary && !tl_token_file_expect(f, vocabulary, 0)) return false;
    if (!target_of(&to, f, path, format, vocabulary)) return false;
    tl_token_writer *w = writer_new(file_writer_new(path), &to, false);
    if (!w) return false;
    if (tokens_copy(f, w, progress, context)) return tl_token_writer_commit(w);
    tl_token_writer_discard(w);
    return false;
}
