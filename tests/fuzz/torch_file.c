// fuzz-sources: model-server/model/safetensors.c model-server/model/tensor_file.c
// fuzz-sources: model-server/model/torch_zip.c model-server/model/torch_pickle.c
// fuzz-sources: common/json.c common/json_reader.c common/arena.c common/buf.c
// fuzz-sources: common/json_exact.c common/err.c common/utf8.c common/file_map.c
#include "model-server/model/tensor_parse.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Every tensor that is accepted lies inside the file and is found by its name. The same bytes are
 * also read as a bare pickle, which an archive's directory would keep most variants from. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tensor_file s;
    struct torch_tensors v;
    struct err e = {0};
    volatile uint8_t sink = 0;
    if (torch_pickle(&v, data, n, &e) == 0)
        free(v.v);
    else if (!e.msg[0] || strchr(e.msg, '\n'))
        abort();
    memset(&e, 0, sizeof(e));
    if (torch_parse(&s, "f", data, n, &e)) {
        if (!e.msg[0] || strchr(e.msg, '\n'))
            abort();
        return 0;
    }
    for (uint32_t i = 0; i < s.n; i++) {
        const struct tensor *t = &s.tensors[i];
        const uint8_t *p = t->data;
        if (tensor_file_find(&s, t->name) != t || t->bytes > n || (size_t)(p - data) > n - t->bytes)
            abort();
        for (uint64_t k = 0; k < t->bytes; k += 61)
            sink = sink ^ p[k];
    }
    tensor_file_close(&s);
    return 0;
}
