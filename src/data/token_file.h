/* token_file.h: the header of a token file, and reading that is safe on any thread. */
#ifndef DATA_TOKEN_FILE_H
#define DATA_TOKEN_FILE_H

#include "base/file.h"
#include "tally.h"

/* An error as a value: the loader's thread must not record it, since under TL_ABORT the program would stop there. */
struct problem {
    tl_status status;
    char text[600];
};
bool problem_set(struct problem *problem, tl_status status, const char *format, ...) TL_PRINTF(3, 4); /* always false */

enum { TOKEN_BLOCK_BYTES = 65536 };

/* Ids of that many bytes are below this. */
static inline int64_t token_width_limit(int token_bytes) {
    return (int64_t)1 << (token_bytes >= 4 ? 31 : 8 * token_bytes);
}

/* Reads and checks the header of the `bytes` bytes at `data`; `path` is for messages and, in TL_TOKENS_AUTO, for its
 * ending. On true, count > 0 and data_begin + count * token_bytes <= bytes. */
bool token_header_read(tl_token_info *info, const unsigned char *data, size_t bytes, const char *path,
                       tl_token_format format, struct problem *problem);

/* Where the table of documents begins in Tally's format. */
static inline uint64_t token_documents_begin(const tl_token_info *info) {
    return 64 + ((uint64_t)info->count * (uint64_t)info->token_bytes + 7) / 8 * 8;
}

/* The header that a file of this format begins with, from its info, and the checksums of the tables of Tally's. */
enum { TOKEN_HEADER_MOST = 1024 };
struct token_crcs {
    uint32_t blocks, documents;
};
size_t token_header_bytes(tl_token_format format);
void token_header_print(unsigned char *header, const tl_token_info *info, struct token_crcs crcs);

/* tl_token_file_open of a file in an open folder. */
tl_token_file *token_file_open_at(struct file_place at, tl_token_format format);
void token_file_keep(tl_token_file *file); /* one more tl_token_file_close is due */

const char *token_file_path(const tl_token_file *file);          /* for messages: another file may be there by now */
int token_file_descriptor(const tl_token_file *file);            /* open as long as the file is */
const unsigned char *token_file_data(const tl_token_file *file); /* of the first token; for a text, its bytes */

/* tl_token_writer_new of a file in an open folder. */
tl_token_writer *token_writer_at(struct file_place at, int token_bytes, int64_t vocabulary, uint64_t hash);

/* A writer that another process can continue: the tokens are in PATH.partial, the documents in PATH.partial.documents,
 * which discarding leaves. `from`: where to continue, as token_writer_save said; all zeros: from the beginning. What is
 * there is compared with the checksum. */
#define TOKEN_PARTIAL ".partial"
#define TOKEN_PARTIAL_DOCUMENTS ".partial.documents"
struct token_position {
    int64_t count, documents;
    uint32_t crc;  /* of the checksums of whole blocks */
    bool is_begun; /* the next token begins a document */
};
tl_token_writer *token_writer_kept(const char *path, int token_bytes, int64_t vocabulary, uint64_t hash,
                                   const struct token_position *from);
int64_t token_writer_documents(const tl_token_writer *w); /* that are recorded so far */
/* Syncs what was added so far. */
bool token_writer_save(tl_token_writer *w, struct token_position *at);
/* The first half of commit: writes what comes behind the tokens, and the header. Then nothing can be added. */
bool token_writer_finish(tl_token_writer *w);

/* For each of n tokens, the place among them where its document begins, which may also begin before them: 0. They are
 * tokens `from` and following of the file. Documents begin at each `document_token`; -1: where the file says. */
void token_file_begins(const tl_token_file *file, int64_t document_token, const int32_t *ids, int64_t from, int64_t n,
                       int32_t *begin);
/* tl_token_file_read with the error as a value. */
bool token_file_fetch(tl_token_file *file, int32_t *ids, int64_t from, int64_t n, struct problem *problem);

#endif
