/* unused.h - tensors of a checkpoint that the model did not read.
 *
 * A tensor that is left out gives text that only looks like an answer. Two things are checked
 * after loading. A bias with nonzero numbers beside a matrix that was read is an error, since
 * config.json contradicts the training. Weights and biases in a layer that was read are named in
 * one warning. Other unread tensors are ignored: whole layers and towers belong to other uses
 * (prediction layers, vision), some packers write zero biases, and tables of rotations can be
 * computed. GGUF files are not checked. */
#ifndef MODEL_SERVER_MODEL_UNUSED_H
#define MODEL_SERVER_MODEL_UNUSED_H
#include "model-server/model/checkpoint/checkpoint.h"

enum { UNUSED_NAMED = 4 };
struct unused {
    uint32_t n;                      /* unread tensors in layers that were read */
    const char *first[UNUSED_NAMED]; /* names in the checkpoint; NULL after the last */
};
/* After the last checkpoint_find(). -1: ERR_VALIDATION, which names the bias. */
int unused_check(const struct checkpoint *c, struct unused *out, struct err *e);
/* Logs the warning, if there is one. */
void unused_log(const struct unused *u);
#endif
