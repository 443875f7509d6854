/* set.h - a model in GGUF: one file, or the parts of a split one (name-00001-of-00003.gguf). */
#ifndef COMMON_GGUF_SET_H
#define COMMON_GGUF_SET_H
#include "common/gguf/gguf.h"
#include <limits.h>

struct gguf_set {
    struct gguf *files; /* the first has the metadata; tensors are distributed over all */
    uint32_t n;
    struct gguf *projector; /* or NULL: its metadata and tensors are not those of `files` */
};

/* Between the path of a model and that of its projector of images: see projector.h. */
#define GGUF_PROJECTOR_MARK "+mmproj="

/* `path`: the file, or any part of a split model; both may be followed by a projector. Errors as
 * gguf_open(), also for a missing part, and a tensor in two parts. A failed open needs no close. */
int gguf_set_open(struct gguf_set *s, const char *path, struct err *e);
void gguf_set_close(struct gguf_set *s);
/* NULL: absent */
const struct gguf_tensor *gguf_set_tensor(const struct gguf_set *s, const char *name);

/* Do all parts exist that the name implies? */
bool gguf_set_is_whole(const char *path);
/* Writes the name of part `no` (from 1) of the model whose first file is `first`. False: it has
 * fewer parts. */
bool gguf_part_name(const char *first, uint32_t no, char *out, size_t size);

/* The path of the projector behind that of the model, within `path`; NULL: none. */
const char *gguf_projector_path(const char *path);
/* The path without its projector: `path` itself, or a copy in `out`, cut off beyond PATH_MAX. */
const char *gguf_model_path(const char *path, char out[PATH_MAX]);
/* Is `path` a GGUF file? A regular file with that extension, or with that magic number; a projector
 * may follow. */
bool gguf_is_file(const char *path);
/* The path of the only GGUF model in a folder (its first part); the caller frees it. Image
 * projectors (mmproj-...) are ignored. NULL: none (e->kind is ERR_NONE), or several (ERR_VALIDATION
 * names two). `quant`: only files whose name contains it ("Q4_K_M", in any case), or NULL. */
char *gguf_in_folder(const char *dir, const char *quant, struct err *e);
/* Does a file name contain this quantisation, delimited by non-alphanumerics? "model-Q4_K_M.gguf"
 * contains Q4_K_M. */
bool gguf_name_says(const char *file, const char *quant);
/* Is it the name of a projector's file, "mmproj-F16.gguf"? Of a model's (first) file? */
bool gguf_is_projector(const char *file);
bool gguf_is_first(const char *file);
#endif
