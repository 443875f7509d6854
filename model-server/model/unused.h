/* unused.h - what a checkpoint has and the model never asked for.
 *
 * A tensor that is left out gives words that only look like an answer. After loading, two things
 * are looked at: a bias with numbers in it beside a matrix that was read is a fault, since
 * config.json denies what was trained; weights and biases in a layer that was read are named in
 * one warning. Whole layers and towers that were not read belong to something else (prediction
 * layers, vision), zero biases are what some packers write, and tables of rotations can be
 * computed: these are left out without a word. GGUF files are not looked at. */
#ifndef MODEL_SERVER_MODEL_UNUSED_H
#define MODEL_SERVER_MODEL_UNUSED_H
#include "model-server/model/checkpoint.h"

enum { UNUSED_NAMED = 4 };
struct unused {
    uint32_t n;                      /* tensors in layers that were read */
    const char *first[UNUSED_NAMED]; /* names of the checkpoint's; NULL behind the last */
};
/* After the last checkpoint_find(). -1: ERR_VALIDATION, which names the bias. */
int unused_check(const struct checkpoint *c, struct unused *out, struct err *e);
/* The warning; nothing where there is none. */
void unused_log(const struct unused *u);
#endif
