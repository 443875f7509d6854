/* fuzz_replay.c - a fuzzer without libFuzzer: main() of a program that gives each file of a corpus
 * to LLVMFuzzerTestOneInput, as it is and in MUTATIONS variants that are the same in every run.
 *
 *     build/replay/NAME tests/fuzz/corpus/NAME */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t below(uint64_t *state, uint64_t n)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)((*state >> 16) % n);
}

/* In a block of its own size: a sanitizer sees each byte that is read beyond it. */
static void run(const uint8_t *data, size_t size)
{
    uint8_t *own = malloc(size ? size : 1);
    if (size)
        memcpy(own, data, size);
    LLVMFuzzerTestOneInput(own, size);
    free(own);
}

/* A cut, and a few bytes changed, copied or exchanged for those that parsers look for. */
static void run_mutated(const uint8_t *data, size_t size, uint64_t *state)
{
    static const char marks[] = "{}[]\"\\,:0-<>%|\n\0\xff\x80";
    uint8_t *own = malloc(size);
    memcpy(own, data, size);
    if (below(state, 4) == 0)
        size = 1 + below(state, size);
    for (uint32_t n = 1 + below(state, 4); n > 0; n--) {
        uint32_t at = below(state, size), from = below(state, size);
        switch (below(state, 3)) {
        case 0:
            own[at] ^= (uint8_t)(1u << below(state, 8));
            break;
        case 1:
            own[at] = (uint8_t)marks[below(state, sizeof(marks) - 1)];
            break;
        default:
            memmove(own + at, own + from, below(state, size - (at > from ? at : from)));
        }
    }
    run(own, size);
    free(own);
}

static void replay(const char *path, int mutations)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) {
        perror(path);
        exit(1);
    }
    long size = ftell(f);
    rewind(f);
    uint8_t *data = malloc((size_t)size + 1);
    if (size < 0 || fread(data, 1, (size_t)size, f) != (size_t)size) {
        perror(path);
        exit(1);
    }
    fclose(f);
    run(data, (size_t)size);
    uint64_t state = 0x9e3779b97f4a7c15ull ^ (uint64_t)size;
    for (int i = 0; i < mutations && size > 0; i++)
        run_mutated(data, (size_t)size, &state);
    free(data);
}

int main(int argc, char **argv)
{
    const char *n = getenv("MUTATIONS");
    int mutations = n ? atoi(n) : 300;
    struct dirent **names;
    unsigned count = 0;
    for (int i = 1; i < argc; i++) {
        int n_names = scandir(argv[i], &names, NULL, alphasort);
        if (n_names < 0) {
            perror(argv[i]);
            return 1;
        }
        for (int k = 0; k < n_names; free(names[k++])) {
            char path[PATH_MAX];
            if (names[k]->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "%s/%s", argv[i], names[k]->d_name);
            replay(path, mutations);
            count++;
        }
        free(names);
    }
    run((const uint8_t *)"", 0);
    printf("%s: %u files, %d variants of each\n", argv[0], count, mutations);
    return count == 0;
}
