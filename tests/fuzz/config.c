// fuzz-sources: common/tokenizer/likely*.c
// fuzz-sources: model-server/model/arch.c model-server/model/arch/*.c model-server/model/config/*.c
// fuzz-sources: model-server/model/rope.c model-server/model/split.c common/json/json.c
// fuzz-sources: common/json/reader.c common/arena.c common/json/exact.c common/err.c common/utf8.c
// fuzz-sources: common/buf.c common/model/model_file.c common/gguf/*.c common/tokenizer/gguf*.c
// fuzz-sources: common/tokenizer/longest.c
// fuzz-sources: common/tokenizer/vocab.c common/file/file_map.c common/tokenizer/scored.c
// fuzz-sources: common/tokenizer/folder*.c common/tokenizer/sentencepiece.c
// fuzz-sources: common/model/first_module.c
#include "model-server/model/arch.h"
#include "model-server/model/rope.h"
#include "model-server/model/split.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_spec(const struct decoder_spec *s)
{
    float inv[ROPE_MAX_DIM / 2];
    struct split split;
    struct err e;
    if (!s->hidden || !s->n_layers || s->n_layers > SPEC_MAX_LAYERS || !s->head_dim ||
        s->n_heads % s->n_kv_heads || s->moe.top_k > s->moe.n_experts)
        abort();
    for (int i = 0; i < SPEC_MAX_ROPES; i++) {
        if (s->rope[i].dim > s->head_dim || s->rope[i].dim % 2)
            abort();
        rope_inv_freq(&s->rope[i], 100, inv);
    }
    split_make(&split, s, 1, 2, &e);
}

/* A config.json is refused in one line or gives a spec within bounds. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct decoder_spec spec;
    static int fd = -1;
    const struct arch *a;
    const char *type;
    char path[64];
    struct err e = {0};
    if (fd < 0)
        fd = memfd_create("config", 0);
    if (ftruncate(fd, 0) || pwrite(fd, data, n, 0) != (ssize_t)n)
        return 0;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (arch_configure(path, NULL, NULL, 0, &a, &type, &spec, &e) == 0)
        check_spec(&spec);
    else if (!e.msg[0] || strchr(e.msg, '\n'))
        abort();
    return 0;
}
