/* folder_impl.h - what folder.c and the kinds of vocabulary share. */
#ifndef COMMON_TOKENIZER_FOLDER_IMPL_H
#define COMMON_TOKENIZER_FOLDER_IMPL_H
#include "common/buf.h"
#include "common/json.h"
#include "common/model_file.h"
#include "common/tokenizer/vocab.h"

struct tok_folder {
    const char *dir;
    cJSON *config;    /* tokenizer_config.json, or an empty object */
    cJSON *added;     /* the list added_tokens, being made */
    struct vocab ids; /* the model's, by text */
    const char *type; /* tokenizer_class without "Fast", "" where it is not said */
};

/* A token that is cut out of texts, with the flags that one has as a rule: of special ones none is
 * looked for in the normalised text. One that is there already is left as it is. */
void folder_add(struct tok_folder *f, uint32_t id, const char *text, size_t n, bool special);
/* A file of the folder; the caller frees it. */
char *folder_read(const struct tok_folder *f, const char *name, size_t *n, struct err *e);

/* Each kind reads its vocabulary into `ids` (and its own special tokens into `added`), and appends
 * what stands behind added_tokens and before post_processor, and the model. */
struct folder_text {
    struct buf steps;      /* "normalizer":..,"pre_tokenizer":..,"decoder":.. */
    struct buf model;      /* {"type":..} */
    const char *bos, *eos; /* around texts, unless the config says otherwise; NULL: none */
    bool add_bos, add_eos, pair_types;
};
typedef int folder_kind(struct tok_folder *f, struct folder_text *t, struct err *e);
folder_kind folder_sentencepiece, folder_merges, folder_wordpiece, folder_tiktoken;
#endif
