/* packed.h - packed weights that outlive the process: a load finds them in a file, or leaves them
 * there for the next one.
 *
 * A load asks for its matrices in an order that follows from model and options, which the key of
 * the file names. With a file each is a view of it; without one it is packed as ever, and all are
 * written behind the service's back once it serves. Nothing here fails a load: whatever is wrong
 * with the folder or a file is one line of the log. One thread, beside the writer's own. */
#ifndef MODEL_SERVER_PACKED_PACKED_H
#define MODEL_SERVER_PACKED_PACKED_H
#include "common/err.h"
#include "model-server/packed/file.h"

struct packed_options {
    const char *dir;     /* of the files */
    uint64_t most_bytes; /* of all of them together */
    const char *model;   /* a folder or a GGUF file */
    const char *heads;   /* a folder of draft heads that are loaded with it, or NULL */
    const char *words;   /* what else the packed weights depend on: types, rank, heads */
    const struct backend_ops *ops;
    struct device *dev;
};

struct packed;
/* Looks for the file and reads all of it. NULL: there is nothing to be done, or no way to. */
struct packed *packed_open(const struct packed_options *o);
/* Ends the writer; a file that is not complete goes. The file's matrices are not used any more, and
 * others not freed yet. NULL is fine. */
void packed_close(struct packed *p);

/* The next matrix, which is made of `what` (a hash), and what became of its parts. NULL: there is
 * no file, or it is not of this load after all; the matrix is to be packed. `p` may be NULL. */
struct weight *packed_take(struct packed *p, uint64_t what, const struct packed_note **notes);
/* What was packed instead. It lives until packed_close(). */
void packed_add(struct packed *p, const struct weight *w, uint64_t what,
                const struct packed_note notes[PACKED_NOTES]);
/* The load is over and the service serves: writes the file if it was not used. */
void packed_keep(struct packed *p);

uint64_t packed_mapped(const struct packed *p); /* bytes of the file that is used; NULL is fine */
#endif
