/* out.h - output of a quantisation: tensors at offsets that are fixed in advance, in files that
 * appear atomically.
 *
 * All files are written to the folder OUT.partial; out_finish() renames it. Until then a run with
 * the same key can resume after the last unit recorded by out_done(). */
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
    uint32_t done;      /* units that an earlier run completed */
    bool resumed, ours; /* ours: the partial folder belongs to this run */
    bool single;        /* OUT is a single file, the only one of the folder that is kept */
};

/* Opens an output. ERR_VALIDATION: `path` exists, or its partial folder belongs to another run. */
int out_open(struct out *o, const char *path, uint64_t key, bool single, struct err *e);
/* Declares a tensor. Returns its index, or -1: out of memory. */
int64_t out_add(struct out *o, const char *name, const char *type, int n_dims, const uint64_t *dims,
                uint64_t bytes, struct err *e);
/* Creates safetensors files of at most `most` bytes for all tensors: writes the headers and
 * allocates the disk space. ERR_SYSTEM: the disk is too small. */
int out_create_safetensors(struct out *o, uint64_t most, struct err *e);
/* Creates one file with the header `head`, followed by the tensors aligned to `align` bytes. */
int out_create_file(struct out *o, const char *name, const struct buf *head, uint64_t align,
                    struct err *e);
/* Computes offsets only, for a header that contains them: tensor.at counts from its end. */
void out_place(struct out *o, uint64_t align);
/* Writes n bytes of tensor `i` at its byte `at`. Any thread. */
int out_write(const struct out *o, uint32_t i, uint64_t at, const void *p, size_t n, struct err *e);
/* Writes a small file of the folder. */
int out_text(const struct out *o, const char *name, const char *text, size_t n, struct err *e);
/* Returns the path of a temporary file of the folder; the caller frees it. */
char *out_scratch(const struct out *o, const char *name);
/* Records that units [0, units) are on disk. */
int out_done(struct out *o, uint32_t units, struct err *e);
/* Syncs the files and renames the folder (or the single file) to OUT. */
int out_finish(struct out *o, struct err *e);
/* Closes the files. `drop`: also removes the partial folder. */
void out_close(struct out *o, bool drop);
#endif
