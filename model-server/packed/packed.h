/* packed.h - cache of packed weights on disk (--packed-cache).
 *
 * A load requests its matrices in an order that depends on model and options only; the file's key
 * covers both. With a file, each matrix is a view into its mapping. Without one, the load packs the
 * matrices, and a background thread writes the file once the service is ready. Errors of the folder
 * or a file never fail a load: they are logged in one line. One thread calls these functions. */
#ifndef MODEL_SERVER_PACKED_PACKED_H
#define MODEL_SERVER_PACKED_PACKED_H
#include "common/err.h"
#include "common/model_identity.h"
#include "model-server/packed/file.h"

struct packed_options {
    const char *dir;                    /* folder of the files */
    uint64_t most_bytes;                /* limit of their total size */
    const char *model;                  /* checkpoint folder or GGUF file */
    const struct model_identity *files; /* of the model; not kept */
    const char *heads;                  /* folder of draft heads, or NULL */
    const char *words;                  /* further inputs of the packing: types, rank, heads */
    const struct backend_ops *ops;
    struct device *dev;
};

struct packed;
/* Opens the file of this load and verifies its checksums, which reads all of it. NULL: the cache
 * cannot be used. */
struct packed *packed_open(const struct packed_options *o);
/* Stops the writer and removes an incomplete file. Call it when no matrix of the file is in use any
 * more, and before the others are freed. NULL is fine. */
void packed_close(struct packed *p);

/* Returns the next matrix from the file, and in *notes how its parts are stored. `what`: hash of
 * its parts. NULL: there is no file, or it does not match this load; the caller packs the matrix.
 * `p` may be NULL. */
struct weight *packed_take(struct packed *p, uint64_t what, const struct packed_note **notes);
/* Registers a matrix that the caller packed. It must live until packed_close(). */
void packed_add(struct packed *p, const struct weight *w, uint64_t what,
                const struct packed_note notes[PACKED_NOTES]);
/* Call it when the service is ready: starts writing the file unless it was used. */
void packed_keep(struct packed *p);

/* Fails if the file was written or shortened while its matrices are in use: what was computed since
 * the last call may be wrong. One system call. NULL is fine. */
int packed_check(const struct packed *p, struct err *e);
uint64_t packed_mapped(const struct packed *p); /* mapped bytes of the file; NULL is fine */
#endif
