/* cache.h - finds a model's files on this machine.
 *
 * A model id is a local folder, a GGUF file, or a repository of the Hugging Face hub in the hub's
 * cache: <root>/models--org--name/{refs/<revision>, snapshots/<commit>/...}. Root: see settings.h.
 * store.h writes the cache. A folder without safetensors and with one GGUF model stands for that
 * file; a repository name may select one of several: org/name:Q4_K_M. */
#ifndef COMMON_HUB_CACHE_H
#define COMMON_HUB_CACHE_H
#include "common/err.h"
#include <stdbool.h>

/* The folder or GGUF file, absolute or as given; caller frees. `revision` NULL or "": main.
 * ERR_VALIDATION names what was searched and where. */
char *hub_resolve(const char *model_id, const char *revision, struct err *e);
/* As hub_resolve(), for the model itself, which WEIGHTS_CACHE_OVERRIDE may replace, and with
 * the vision tower of a GGUF model: `mmproj` is a file, "none", or NULL, see gguf_with_projector().
 */
char *hub_resolve_model(const char *model_id, const char *revision, const char *mmproj,
                        struct err *e);

/* Which parts of a model or adapter exist in `dir`, a folder or a GGUF file (always complete or
 * absent). Weights: model.safetensors, or every file named in model.safetensors.index.json, or an
 * adapter's. Complete: also the configuration, and a model's tokenizer. */
enum hub_parts { HUB_NO_WEIGHTS, HUB_ONLY_WEIGHTS, HUB_WHOLE };
enum hub_parts hub_parts(const char *dir);
/* The folder has a file of this name. */
bool hub_has_file(const char *dir, const char *name);
#endif
