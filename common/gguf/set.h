/* set.h - a model in GGUF: one file, or the files of a split one (name-00001-of-00003.gguf). */
#ifndef COMMON_GGUF_SET_H
#define COMMON_GGUF_SET_H
#include "common/gguf/gguf.h"

struct gguf_set {
    struct gguf *files; /* the first has the metadata; each has tensors of its own */
    uint32_t n;
};

/* `path`: the file, or any one of a split model's. Errors as gguf_open()'s; a file that is missing,
 * and a tensor that two files have, are errors too. A failed open needs no close. */
int gguf_set_open(struct gguf_set *s, const char *path, struct err *e);
void gguf_set_close(struct gguf_set *s);
const struct gguf_tensor *gguf_set_tensor(const struct gguf_set *s, const char *name); /* or NULL */

/* Are all files there that the name of one speaks of? */
bool gguf_set_is_whole(const char *path);
/* The name of part `no` (from 1) of the model whose first file is `first`, into `out`; false: it
 * has fewer. */
bool gguf_part_name(const char *first, uint32_t no, char *out, size_t size);

/* Is `path` meant as such a file? A regular one that is called so, or begins so. */
bool gguf_is_file(const char *path);
/* The one model in GGUF that lies in the folder: the path of its (first) file, which the caller
 * frees. Projectors of images (mmproj-...) are passed over. NULL: there is none (e->kind is
 * ERR_NONE), or there are several (ERR_VALIDATION names two). `quant`: only those whose name says
 * it ("Q4_K_M", in any case), or NULL. */
char *gguf_in_folder(const char *dir, const char *quant, struct err *e);
/* Does the name of a file say that it is packed so? "model-Q4_K_M.gguf" does: Q4_K_M, no letter or
 * digit on either side. */
bool gguf_name_says(const char *file, const char *quant);
/* Is it the name of a model's (first) file, and of no projector? */
bool gguf_is_first(const char *file);
#endif
