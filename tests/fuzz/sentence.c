// fuzz-sources: common/tokenizer/likely*.c
// fuzz-sources: common/json/exact.c common/arena.c common/json/reader.c
// The files of sentence-transformers, one of them of foreign bytes.

// fuzz-sources: common/model/visual_form.c
// fuzz-sources: common/model/sentence*.c common/buf.c common/err.c common/json/json.c common/utf8.c
// fuzz-sources: common/model/model_file.c common/gguf/*.c common/tokenizer/gguf*.c
// fuzz-sources: common/tokenizer/longest.c
// fuzz-sources: common/tokenizer/vocab.c common/file/file_map.c common/tokenizer/scored.c
// fuzz-sources: common/tokenizer/folder*.c common/tokenizer/sentencepiece.c
// fuzz-sources: common/model/first_module.c
#include "common/model/sentence.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name, *usual;
} files[] = {
    {"modules.json", "[{\"type\":\"x.Transformer\",\"path\":\"\"},{\"type\":\"x.Pooling\",\"path\":"
                     "\"1_Pooling\"},{\"type\":\"x.Dense\",\"path\":\"2_Dense\"},"
                     "{\"type\":\"x.Router\",\"path\":\"\"}]"},
    {"1_Pooling/config.json", "{\"pooling_mode_cls_token\":true}"},
    {"sentence_bert_config.json", "{\"max_seq_length\":64}"},
    {"config_sentence_transformers.json",
     "{\"prompts\":{\"a\":\"b\"},\"default_prompt_name\":\"a\"}"},
    {"config.json", "{\"architectures\":[\"BertModel\"]}"},
    {"router_config.json", "{\"types\":{\"1_Pooling\":\"x.SpladePooling\"},"
                           "\"structure\":{\"document\":[\"1_Pooling\"]}}"},
};
enum { N_FILES = sizeof(files) / sizeof(files[0]) };

static char dir[64];

static void put(size_t i, const void *p, size_t n)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/%s", dir, files[i].name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p, 1, n, f) != n || fclose(f))
        abort();
}

static void clean_up(void)
{
    char path[160];
    for (size_t i = 0; i < N_FILES; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, files[i].name);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/1_Pooling", dir);
    rmdir(path);
    rmdir(dir);
}

static void make_dir(void)
{
    char path[96];
    snprintf(dir, sizeof(dir), "/tmp/fuzz-sentence-XXXXXX");
    if (!mkdtemp(dir))
        abort();
    snprintf(path, sizeof(path), "%s/1_Pooling", dir);
    if (mkdir(path, 0700))
        abort();
    atexit(clean_up);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The first byte picks the file. What is accepted is whole and never leaves the folder. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct sentence s;
    struct err e = ERR_INIT;
    enum model_task task;
    const size_t at = n ? data[0] % N_FILES : 0;
    if (!dir[0])
        make_dir();
    for (size_t i = 0; i < N_FILES; i++)
        put(i, i == at && n ? (const void *)(data + 1) : files[i].usual,
            i == at && n ? n - 1 : strlen(files[i].usual));
    int rc = sentence_load(&s, dir, &e);
    if (rc == 0) {
        for (uint32_t i = 0; i < s.n_dense; i++)
            if (strstr(s.dense[i], "..") || s.dense[i][0] == '/')
                abort();
        sentence_prompt(&s, NULL);
        rc = model_task_of(dir, &s, &task, &e);
    }
    if (rc && (e.kind == ERR_NONE || !e.msg[0]))
        abort();
    sentence_free(&s);
    return 0;
}
