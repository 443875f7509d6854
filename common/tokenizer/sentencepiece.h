/* sentencepiece.h - a SentencePiece model (tokenizer.model): pieces with scores and kinds.
 *
 * The file is a protocol buffer, ModelProto of
 * https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto, read here by
 * hand: every length is checked, fields that do not matter are skipped. */
#ifndef COMMON_TOKENIZER_SENTENCEPIECE_H
#define COMMON_TOKENIZER_SENTENCEPIECE_H
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum spm_kind { SPM_NORMAL = 1, SPM_UNKNOWN, SPM_CONTROL, SPM_USER_DEFINED, SPM_UNUSED, SPM_BYTE };
struct spm_piece {
    const char *p; /* UTF-8, a view of the bytes */
    size_t n;
    float score;
    enum spm_kind kind;
};
struct spm {
    struct spm_piece *piece; /* [n] by id; owned */
    uint32_t n;
    bool bpe;                   /* else unigrams */
    bool bytes;                 /* what has no piece becomes bytes: <0x0A> */
    bool prefix;                /* a blank is put in front of texts */
    bool squeeze;               /* runs of blanks are one, none at the ends */
    int64_t unk, bos, eos, pad; /* ids, -1: none */
    const char *charsmap;       /* how texts are normalised; a view */
    size_t n_charsmap;
};

/* `bytes` must outlive it. ERR_VALIDATION: what is wrong, without a path. A failed open needs no
 * close. */
int spm_open(struct spm *m, const void *bytes, size_t n, struct err *e);
void spm_close(struct spm *m);
#endif
