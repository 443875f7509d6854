/* mlx.h - numbers that Apple's mlx-lm changes when it converts a checkpoint, quantised or not.
 *
 * Its models with convolutions keep them as [channels, width, 1] and, in some families, have other
 * numbers in other tensors then. The shape is the only sign of that. */
#ifndef MODEL_SERVER_MODEL_MLX_H
#define MODEL_SERVER_MODEL_MLX_H
#include "model-server/model/decoder.h"

struct arch;
struct checkpoint;

/* Of such a checkpoint: norms that add 1 to their weights no longer do, because the file has the
 * sum. ERR_VALIDATION: the family's numbers are changed in a way that is not read. */
int mlx_adapt(struct decoder_spec *s, const char *type, const struct arch *a,
              const struct checkpoint *c, struct err *e);
#endif
