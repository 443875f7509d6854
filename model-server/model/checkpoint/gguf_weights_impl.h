/* gguf_weights_impl.h - private: shared by gguf_weights.c, which reads text models, gguf_experts.c
 * and gguf_tower.c. */
#ifndef MODEL_SERVER_MODEL_CHECKPOINT_GGUF_WEIGHTS_IMPL_H
#define MODEL_SERVER_MODEL_CHECKPOINT_GGUF_WEIGHTS_IMPL_H
#include "model-server/model/checkpoint/gguf_names.h"
#include "model-server/model/checkpoint/gguf_order.h"
#include "model-server/model/checkpoint/gguf_weights.h"

enum { EXPERTS_MAX = 65536 };

/* Memory that is freed with `w`; NULL: out of memory. Takes over `p` in any case. */
void *gguf_weights_own(struct gguf_weights *w, void *p);
/* The family's name of this use, owned by `w`; if all experts may be in one tensor, that of a
 * single expert. NULL: out of memory. */
const char *gguf_weights_spell(struct gguf_weights *w, const struct arch *a,
                               const struct gguf_use *u, unsigned expert);
/* That of a tensor of all experts. */
const char *gguf_weights_spell_all(struct gguf_weights *w, const struct arch *a,
                                   const struct gguf_use *u);
/* Appends a copy of `t`, whose name NULL is an error. */
int gguf_weights_add(struct gguf_weights *w, const struct tensor *t, struct err *e);
/* Dimensions and type of the file's tensor. */
void gguf_weights_dims(struct tensor *t, const struct gguf_tensor *g);
int gguf_weights_type(struct tensor *t, const struct gguf_tensor *g, struct err *e);
/* Subtracts the constant that was added to a norm. */
int gguf_weights_undo_plus(struct gguf_weights *w, struct tensor *t, float plus, struct err *e);
/* Reorders rows or columns as in the family: of tables now, of matrices when they are read. */
int gguf_weights_order(struct gguf_weights *w, struct tensor *t, enum role role,
                       const struct gguf_shape *s, struct err *e);
/* The first dimension of such a tensor is of streams, instead of experts. */
static inline bool gguf_has_streams(enum role r) { return r == W_ALTUP_IN || r == W_ALTUP_OUT; }
/* Adds the tensors of a layer's experts, which are consecutive; or for each its gate, then its
 * up; or those of all streams. */
int gguf_weights_add_experts(struct gguf_weights *w, const struct arch *a, const struct gguf_use *u,
                             const struct gguf_tensor *g, struct tensor t, struct err *e);
/* The biases of a layer's experts, in gpt-oss's layout: all in one tensor, [n, rows], in which
 * those of gate and up are interleaved. */
int gguf_weights_add_expert_biases(struct gguf_weights *w, const struct arch *a,
                                   const struct gguf_use *u, const struct gguf_tensor *g,
                                   struct tensor t, struct err *e);
/* Sorts by name, for gguf_weights_find(). */
void gguf_weights_sort(struct gguf_weights *w);
#endif
