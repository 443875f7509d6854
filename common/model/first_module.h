/* first_module.h - the folder of a model's own files in a folder of sentence-transformers.
 *
 * modules.json may list the first module, which has the weights, in a folder of its own
 * (0_Transformer, 0_StaticEmbedding, 0_CLIPModel). config.json and the other small files of the
 * model lie there, too. */
#ifndef COMMON_FIRST_MODULE_H
#define COMMON_FIRST_MODULE_H
#include <limits.h>
#include <stdbool.h>

/* True if the first module of folder `dir` has a folder of its own: out is its path. */
bool first_module_folder(const char *dir, char out[PATH_MAX]);
/* True if the first module is a table of vectors (StaticEmbedding) without a config.json. */
bool first_module_static(const char *dir);
/* The path at which `path`, a small file of a model, is found: itself; or `moved`, if its folder
 * has no such file, but the first module's folder has. */
const char *first_module_file(const char *path, char moved[PATH_MAX]);
#endif
