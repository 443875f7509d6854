/* index.h - model.safetensors.index.json, pytorch_model.bin.index.json: which files hold the
 * weights of a checkpoint. */
#ifndef COMMON_HUB_INDEX_H
#define COMMON_HUB_INDEX_H
#include "common/err.h"
#include <cjson/cJSON.h>
#include <stddef.h>

struct hub_index {
    cJSON *json;        /* the whole file: json_get(json, "weight_map") maps tensors to files */
    const char **names; /* the distinct files, sorted; they point into `json` */
    size_t n;
};

/* Read `dir`/`file`. ERR_VALIDATION: not readable, no weight_map, more than 4096 files,
 * or one that is not in the folder itself. After a failure there is nothing to close. */
int hub_index_open(struct hub_index *x, const char *dir, const char *file, struct err *e);
void hub_index_close(struct hub_index *x);
#endif
