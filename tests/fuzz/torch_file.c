// fuzz-sources: model-server/model/checkpoint/safetensors.c
// fuzz-sources: model-server/model/checkpoint/tensor_file.c
// fuzz-sources: model-server/model/checkpoint/torch_zip.c
// fuzz-sources: model-server/model/checkpoint/torch_pickle.c common/json/json.c
// fuzz-sources: common/json/reader.c common/arena.c common/buf.c common/json/exact.c common/err.c
// fuzz-sources: common/utf8.c common/file/file_map.c
#include "model-server/model/checkpoint/tensor_parse.h"
#include "tests/fuzz/tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The same bytes are also read as a bare pickle: an archive's directory would keep most variants
 * from it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tensor_file s;
    struct torch_tensors v;
    struct err e = {0};
    if (torch_pickle(&v, data, n, &e) == 0)
        free(v.v);
    else if (!e.msg[0] || strchr(e.msg, '\n'))
        abort();
    memset(&e, 0, sizeof(e));
    int rc = torch_parse(&s, "f", data, n, &e);
    check_tensors(&s, rc, &e, data, n);
    return 0;
}
