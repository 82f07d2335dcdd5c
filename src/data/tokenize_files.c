/* tokenize_files.c: files to a file of tokens, for programs. */
#include <string.h>

#include "base/error.h"
#include "data/tokenize.h"

tl_tokenize_options tl_tokenize_defaults(const tl_tokenizer *tokenizer) {
    return (tl_tokenize_options){.val_share = 0.01,
                                 .seed = 1,
                                 .end_token = tl_tokenizer_end_of_text(tokenizer),
                                 .special = TL_SPECIAL_TEXT,
                                 .save_every_s = 15};
}

static bool format_find(const char *name, enum documents_format *format) {
    static const char *const names[] = {"auto", "text", "jsonl"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i])) return *format = (enum documents_format)i, true;
    return error_set(TL_ERROR_USE, "tl_tokenize_files: format \"%s\" (need auto, text or jsonl)", name);
}

static bool options_check(const tl_tokenizer *t, const char *out, const tl_tokenize_options *o) {
    if (o->end_token < -1 || o->end_token >= tl_tokenizer_size(t))
        return error_set(TL_ERROR_USE, "tl_tokenize_files: end_token %lld (need one of the %lld tokens, or -1)",
                         (long long)o->end_token, (long long)tl_tokenizer_size(t));
    if (o->val_out && !(o->val_share > 0 && o->val_share < 1))
        return error_set(TL_ERROR_USE, "tl_tokenize_files: val_share %g (need more than 0 and less than 1)",
                         o->val_share);
    if (o->val_out && !strcmp(o->val_out, out))
        return error_set(TL_ERROR_USE, "tl_tokenize_files: %s is both files (need another val_out)", out);
    return (o->threads >= 0 && o->save_every_s >= 0 && (unsigned)o->special <= TL_SPECIAL_TEXT) ||
           error_set(TL_ERROR_USE, "tl_tokenize_files: threads %d, save_every_s %g, special %d (need 0 or more)",
                     o->threads, o->save_every_s, (int)o->special);
}

static bool work_make(struct tokenize_options *w, struct inputs *inputs, const char *const *paths, int n,
                      const tl_tokenize_options *o) {
    const bool is_blank = o->separator && !strcmp(o->separator, "blank-line");
    w->inputs = inputs;
    w->documents = (struct documents_options){
        .field = o->field, .separator = is_blank ? DOCUMENTS_BLANK : o->separator, .skips_bad = o->skips_bad};
    w->val_out = o->val_out;
    w->val_share = o->val_share;
    w->seed = o->seed;
    w->end_token = (int32_t)o->end_token;
    w->special = o->special;
    w->threads = o->threads;
    w->save_every_s = o->save_every_s;
    w->restart = o->restarts;
    w->tell = o->progress;
    w->context = o->context;
    bool ok = !o->format || format_find(o->format, &w->documents.format);
    for (int i = 0; ok && i < n; i++)
        ok = paths[i] ? inputs_add(inputs, paths[i]) : error_set(TL_ERROR_USE, "tl_tokenize_files: got NULL as a path");
    return ok;
}

bool tl_tokenize_files(tl_tokenizer *tokenizer, const char *const *paths, int n, const char *out,
                       const tl_tokenize_options *options, tl_tokenize_figures *figures) {
    const tl_tokenize_options o = options ? *options : tl_tokenize_defaults(tokenizer);
    struct tokenize_options work = {.tokenizer = tokenizer, .out = out};
    struct inputs inputs = {0};
    tl_tokenize_figures unused;
    if (!figures) figures = &unused;
    *figures = (tl_tokenize_figures){0};
    if (!tokenizer || !paths || n < 1 || !out || !*out)
        return error_set(TL_ERROR_USE, "tl_tokenize_files: need a tokenizer, at least one path, and an output");
    if (tl_error() != TL_OK || !options_check(tokenizer, out, &o)) return false;
    enum tokenize_end end = work_make(&work, &inputs, paths, n, &o) ? tokenize_run(&work, figures) : TOKENIZE_FAILED;
    inputs_free(&inputs);
    if (end == TOKENIZE_STOPPED) error_set(TL_ERROR_USE, "tokenize: stopped");
    return end == TOKENIZE_DONE;
}
