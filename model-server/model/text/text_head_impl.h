/* text_head_impl.h - shared by text_head_load.c and text_head_class.c: parts of a head in the files
 * of a checkpoint. */
#ifndef MODEL_SERVER_MODEL_TEXT_HEAD_IMPL_H
#define MODEL_SERVER_MODEL_TEXT_HEAD_IMPL_H
#include "model-server/model/text/text_head.h"

/* Reads elements [first, first + n) of a tensor, which may be unaligned. */
int head_numbers(const struct tensor *t, uint64_t first, uint64_t n, float *out, struct err *e);
/* The tensor of both parts of a name, or NULL. */
const struct tensor *head_named(const struct checkpoint *c, const char *name, const char *suffix);
/* A vector [n], or NULL if there is none (which is allowed) or after an error. The caller frees
 * it. */
float *head_vector(const struct checkpoint *c, const char *name, const char *suffix, uint32_t n,
                   struct err *e);
/* The stage with `name`.weight and `name`.bias; its inputs are the previous stage's outputs. */
int head_add_stage(struct text_head *h, const struct checkpoint *c, const char *name,
                   enum head_act act, struct err *e);
/* The stages, the pooling and the labels of a classifier or a reranker. */
int head_classifier(struct text_head *h, const struct text_head_options *o, struct err *e);
/* The stages and the labels of a model that classifies each token, or scores it as an answer's
 * ends. */
int head_token_labels(struct text_head *h, const struct text_head_options *o, struct err *e);
#endif
