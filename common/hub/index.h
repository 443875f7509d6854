/* index.h - reads model.safetensors.index.json and pytorch_model.bin.index.json: the weight files
 * of a checkpoint. */
#ifndef COMMON_HUB_INDEX_H
#define COMMON_HUB_INDEX_H
#include "common/err.h"
#include <cjson/cJSON.h>
#include <stddef.h>

struct hub_index {
    cJSON *json;        /* the whole file: json_get(json, "weight_map") maps tensors to files */
    const char **names; /* distinct files, sorted; point into `json` */
    size_t n;
};

/* Reads `dir`/`file`. ERR_VALIDATION: unreadable, no weight_map, more than 4096 files, or one
 * outside the folder. A failed open needs no close. */
int hub_index_open(struct hub_index *x, const char *dir, const char *file, struct err *e);
void hub_index_close(struct hub_index *x);
#endif
