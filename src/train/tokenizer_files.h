/* tokenizer_files.h: the files of a tokenizer, held in memory, so that a run's folder and final/ carry them. */
#ifndef TRAIN_TOKENIZER_FILES_H
#define TRAIN_TOKENIZER_FILES_H

#include "base/file.h"
#include "step/settings.h"
#include "tally.h"

enum { TOKENIZER_FILES_MOST = 16, TOKENIZER_FILE_NAME = 48 };
struct tokenizer_files {
    int n;
    struct tokenizer_file {
        char name[TOKENIZER_FILE_NAME];
        char *data;
        size_t bytes;
    } at[TOKENIZER_FILES_MOST];
};

/* The files of the tokenizer that the settings name, as they are; a tokenizer that has none (bytes, characters, one
 * that the run has trained) is written as tokenizer.json. Files of other kinds (ranks, tekken, GPT-2's) get an
 * equivalent tokenizer.json, and a tokenizer_config.json that is missing is added, so that transformers'
 * AutoTokenizer finds what it needs; likewise a generation_config.json, which says where texts end. False: recorded;
 * free it all the same. */
bool tokenizer_files_read(struct tokenizer_files *f, const struct settings *s, tl_tokenizer *tokenizer);
bool tokenizer_files_put(const struct tokenizer_files *f, const struct file_folder *folder);
void tokenizer_files_free(struct tokenizer_files *f);

#endif
