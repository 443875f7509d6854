/* out.h - what a quantisation writes: tensors whose places are known before the first number is,
 * in files that appear whole or not at all.
 *
 * Everything is written into the folder OUT.partial. out_finish() gives it its name; until then it
 * can be gone on with, from the unit that out_done() noted last, by a run whose key is the same. */
#ifndef MODEL_SERVER_QUANTIZE_OUT_H
#define MODEL_SERVER_QUANTIZE_OUT_H
#include "common/buf.h"
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OUT_DIMS = 4 };
struct out_tensor {
    char *name; /* owned */
    const char *type;
    int n_dims;
    uint64_t dims[OUT_DIMS];
    uint64_t bytes, at; /* at: in its file */
    uint32_t file;
};
struct out_file {
    char *name; /* owned; in the folder */
    int fd;
    uint64_t bytes;
};
struct out {
    char *path, *partial; /* owned */
    struct out_tensor *tensors;
    uint32_t n, cap;
    struct out_file *files;
    uint32_t n_files;
    uint64_t key;
    uint32_t done;      /* units that an earlier run has written */
    bool resumed, ours; /* ours: the partial folder is of this run */
    bool single;        /* OUT is to be a file, the only one of the folder that is kept */
};

/* ERR_VALIDATION: `path` is there already, or its partial folder is of another run. */
int out_open(struct out *o, const char *path, uint64_t key, bool single, struct err *e);
/* Declares a tensor; returns its number, or -1 without memory. */
int64_t out_add(struct out *o, const char *name, const char *type, int n_dims, const uint64_t *dims,
                uint64_t bytes, struct err *e);
/* Files for all tensors, of at most `most` bytes each where they are safetensors: headers are
 * written, and the room is taken. A disk that has none is an error here. */
int out_create_safetensors(struct out *o, uint64_t most, struct err *e);
/* One file whose `head` is given, behind which the tensors lie on borders of `align` bytes. */
int out_create_file(struct out *o, const char *name, const struct buf *head, uint64_t align,
                    struct err *e);
/* Places alone, for a head that has to say them: tensor.at is from the end of the head. */
void out_place(struct out *o, uint64_t align);
/* `n` bytes of tensor `i` from byte `at` on. Any thread. */
int out_write(const struct out *o, uint32_t i, uint64_t at, const void *p, size_t n, struct err *e);
/* A small file of the folder. */
int out_text(const struct out *o, const char *name, const char *text, size_t n, struct err *e);
/* Path of a file of the folder that is not kept; the caller frees. */
char *out_scratch(const struct out *o, const char *name);
/* Units [0, units) are on the disk. */
int out_done(struct out *o, uint32_t units, struct err *e);
int out_finish(struct out *o, struct err *e);
/* `drop`: nothing is kept to go on with. */
void out_close(struct out *o, bool drop);
#endif
