/* cache.h - where a model's files lie on this machine.
 *
 * A model id is a local folder, a GGUF file, or the name of a repository of the Hugging Face hub
 * that is in the hub's cache: <root>/models--org--name/{refs/<revision>, snapshots/<commit>/...}.
 * Root: see settings.h. store.h writes there. A folder without safetensors that holds one model in
 * GGUF means that file; a repository's name may say which of several: org/name:Q4_K_M. */
#ifndef COMMON_HUB_CACHE_H
#define COMMON_HUB_CACHE_H
#include "common/err.h"
#include <stdbool.h>

/* The folder or GGUF file, absolute or as given; caller frees. `revision` NULL or "": main.
 * ERR_VALIDATION says what was looked for and where. */
char *hub_resolve(const char *model_id, const char *revision, struct err *e);
/* The same for the model itself, which WEIGHTS_CACHE_OVERRIDE may stand for. */
char *hub_resolve_model(const char *model_id, const char *revision, struct err *e);

/* What of a model or an adapter is in `dir`, a folder or a GGUF file, which is whole or nothing.
 * Weights: model.safetensors, or every file that model.safetensors.index.json names, or an
 * adapter's. Whole: also the configuration, and a model's tokenizer. */
enum hub_parts { HUB_NO_WEIGHTS, HUB_ONLY_WEIGHTS, HUB_WHOLE };
enum hub_parts hub_parts(const char *dir);
bool hub_has_file(const char *dir, const char *name);
#endif
