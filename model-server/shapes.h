/* shapes.h - models to benchmark without their weights. */
#ifndef MODEL_SERVER_SHAPES_H
#define MODEL_SERVER_SHAPES_H
#include "common/err.h"

/* The text of the config.json of `name`: a row of the table, or a file's path. ERR_VALIDATION
 * lists the known names. The caller frees. */
char *shape_config(const char *name, struct err *e);
#endif
