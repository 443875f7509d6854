/* model_identity.h - identifies the weights and configuration of a model by SHA-256 digests, so
 * that data derived from one model is not used for another. */
#ifndef COMMON_MODEL_IDENTITY_H
#define COMMON_MODEL_IDENTITY_H
#include "common/err.h"
#include <stdint.h>

enum { IDENTITY_BYTES = 32 };

struct model_identity {
    uint8_t content[IDENTITY_BYTES]; /* equal on machines with the same checkpoint */
    uint8_t times[IDENTITY_BYTES];   /* modification times of this machine's files */
};
/* Identifies `model`, a folder or a GGUF file (any part of a split one). The content digest covers
 * those of sentence-transformers modules, in their folders, too:
 * the lengths of the files, their names in a folder, the first megabyte of each and one page of
 * every two megabytes after that. Beside model*.safetensors the same weights in other formats do
 * not count; nor does what a trainer stores. Reads about a thousandth of a large model. */
int model_identity(const char *model, struct model_identity *out, struct err *e);
/* The same of names, lengths and modification times alone: it reads no file. */
int model_stamp(const char *model, struct model_identity *out, struct err *e);
/* -1: the stamp is not `before` any more. So what was read meanwhile may be of two models, and an
 * identity that was taken meanwhile may be of the other one. */
int model_stamp_check(const char *model, const struct model_identity *before, struct err *e);
/* The identity of data that depends on these files and on `words`. */
int model_identity_with(const struct model_identity *files, const char *words,
                        struct model_identity *out, struct err *e);
#endif
