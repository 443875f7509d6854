/* tensors.h - properties of every tensor that a file parser accepts. */
#ifndef TESTS_FUZZ_TENSORS_H
#define TESTS_FUZZ_TENSORS_H
#include "model-server/model/checkpoint/tensor_file.h"
#include <stdlib.h>
#include <string.h>

/* Every accepted tensor lies within the file, is readable, and is found by its name; an error is
 * one line. Closes `s`; `rc` and `e` are the parser's. */
static inline void check_tensors(struct tensor_file *s, int rc, const struct err *e,
                                 const uint8_t *data, size_t n)
{
    volatile uint8_t sink = 0;
    if (rc && (!e->msg[0] || strchr(e->msg, '\n')))
        abort();
    if (rc)
        return;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct tensor *t = &s->tensors[i];
        const uint8_t *p = t->data;
        if (tensor_file_find(s, t->name) != t || p < data || t->bytes > n ||
            (size_t)(p - data) > n - t->bytes)
            abort();
        for (uint64_t k = 0; k < t->bytes; k += 61)
            sink = sink ^ p[k];
    }
    tensor_file_close(s);
}
#endif
