// fuzz-sources: model-server/model/tensor_file.c model-server/model/torch_zip.c
// fuzz-sources: model-server/model/torch_pickle.c
// fuzz-sources: model-server/model/safetensors.c common/json.c common/json_reader.c common/arena.c
// fuzz-sources: common/buf.c common/json_exact.c common/err.c common/utf8.c common/file_map.c
#include "model-server/model/tensor_file.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Every accepted tensor must lie inside the file, be readable, and be found by its name. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tensor_file s;
    struct err e = {0};
    volatile uint8_t sink = 0;
    if (safetensors_parse(&s, "f", data, n, &e)) {
        if (!e.msg[0] || strchr(e.msg, '\n'))
            abort();
        return 0;
    }
    for (uint32_t i = 0; i < s.n; i++) {
        const struct tensor *t = &s.tensors[i];
        const uint8_t *p = t->data;
        if (tensor_file_find(&s, t->name) != t || p < data || t->bytes > n ||
            (size_t)(p - data) > n - t->bytes)
            abort();
        for (uint64_t k = 0; k < t->bytes; k += 61)
            sink = sink ^ p[k];
    }
    tensor_file_close(&s);
    return 0;
}
