/* cache.h - where a model's files lie on this machine.
 *
 * A model id is a local folder, or the name of a repository of the Hugging Face hub that is in the
 * hub's cache: <root>/models--org--name/{refs/<revision>, snapshots/<commit>/...}. Root: the first
 * of HUGGINGFACE_HUB_CACHE, HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub that is set. */
#ifndef COMMON_HUB_CACHE_H
#define COMMON_HUB_CACHE_H
#include "common/err.h"
#include <stdbool.h>

/* The folder, absolute or as given; caller frees. `revision` NULL or "": main. ERR_VALIDATION says
 * what was looked for and where. */
char *hub_resolve(const char *model_id, const char *revision, struct err *e);
/* Is there a file in `dir` whose name ends with `suffix` (".safetensors")? */
bool hub_has_file(const char *dir, const char *suffix);
#endif
