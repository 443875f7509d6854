/* folder_impl.h - shared by folder.c and the readers of the older formats (folder_kinds.c). */
#ifndef COMMON_TOKENIZER_FOLDER_IMPL_H
#define COMMON_TOKENIZER_FOLDER_IMPL_H
#include "common/buf.h"
#include "common/json/json.h"
#include "common/model/model_file.h"
#include "common/tokenizer/vocab.h"

struct tok_folder {
    const char *dir;
    cJSON *config;    /* tokenizer_config.json, or an empty object */
    cJSON *added;     /* the list added_tokens, being made */
    struct vocab ids; /* the model's, by text */
    const char *type; /* tokenizer_class without "Fast", "" where it is not said */
};

/* Appends an added token with the default flags (not normalised). An existing one of this id is
 * kept. */
void folder_add(struct tok_folder *f, uint32_t id, const char *text, size_t n, bool special);
/* A file of the folder; the caller frees it. */
char *folder_read(const struct tok_folder *f, const char *name, size_t *n, struct err *e);

/* Each reader fills `ids` (and `added` with its special tokens) and appends the parts of
 * tokenizer.json below. */
struct folder_text {
    struct buf steps;      /* "normalizer":..,"pre_tokenizer":..,"decoder":.. */
    struct buf model;      /* {"type":..} */
    const char *bos, *eos; /* default tokens around a text; NULL: none */
    bool add_bos, add_eos, pair_types;
};
typedef int folder_kind(struct tok_folder *f, struct folder_text *t, struct err *e);
folder_kind folder_sentencepiece, folder_merges, folder_wordpiece, folder_tiktoken, folder_rwkv,
    folder_plamo;
#define FOLDER_RWKV  "rwkv_vocab_v20230424.txt" /* what repositories of RWKV's World models have */
#define FOLDER_PLAMO "tokenizer.jsonl"          /* what those of PLaMo 2 and 3 have */
#endif
