// fuzz-sources: model-server/model/checkpoint/tensor_file.c
// fuzz-sources: model-server/model/checkpoint/torch_zip.c
// fuzz-sources: model-server/model/checkpoint/torch_pickle.c
// fuzz-sources: model-server/model/checkpoint/safetensors.c common/json/json.c common/json/reader.c
// fuzz-sources: common/arena.c common/buf.c common/json/exact.c common/err.c common/utf8.c
// fuzz-sources: common/file/file_map.c
#include "tests/fuzz/tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tensor_file s;
    struct err e = {0};
    int rc = safetensors_parse(&s, "f", data, n, &e);
    check_tensors(&s, rc, &e, data, n);
    return 0;
}
