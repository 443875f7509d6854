/* model_impl.h - shared by model.c and the other model_*.c. */
#ifndef MODEL_SERVER_MODEL_MODEL_IMPL_H
#define MODEL_SERVER_MODEL_MODEL_IMPL_H
#include "model-server/model/decoder.h"
#include "model-server/model/model.h"
#include "model-server/model/text/encode.h"

struct model {
    struct decoder d;
    struct sentence sentence;
    struct encoder encoder; /* if the model does not generate */
    struct comm *comm;      /* on the device's memory; NULL: the caller's is used */
    struct model_info info;
    uint32_t *eos;
    uint64_t block_bytes, window_bytes; /* of the existing KV caches */
    void *swap;                         /* the host's region */
    size_t swap_bytes;
};

void model_swap_free(struct model *m); /* the host's region, if there is one */
/* Sets the task, from the options or the files of `dir` (NULL: random weights), the pooling, and
 * what the layers of such a model do otherwise. ERR_VALIDATION: the model has no such task. */
int model_choose_task(struct model *m, const char *dir, const struct model_options *o,
                      struct err *e);
/* Of a model that does not generate, behind its decoder; dir and c NULL: random weights. */
int model_load_head(struct model *m, const char *dir, const struct arch *a,
                    const struct checkpoint *c, const struct model_options *o, struct err *e);
/* ERR_VALIDATION names the first feature of the model for which its backend has no operation. */
int model_check_ops(const struct decoder *d, struct err *e);
#endif
