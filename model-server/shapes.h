/* shapes.h - models whose speed is asked for without their weights at hand. */
#ifndef MODEL_SERVER_SHAPES_H
#define MODEL_SERVER_SHAPES_H
#include "common/err.h"

/* The text of the config.json that `name` stands for: a row of the table, or a file's path.
 * ERR_VALIDATION naming the known ones. The caller frees. */
char *shape_config(const char *name, struct err *e);
#endif
