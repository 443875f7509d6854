/* fp8_made.h - a checkpoint in bfloat16 with its projections in e4m3 and scales of blocks of 128 x
 * 128, with the names and keys of DeepSeek's. */
#ifndef TESTS_GOLDEN_FP8_MADE_H
#define TESTS_GOLDEN_FP8_MADE_H
#include "tests/golden/lora_made.h"

enum { FP8_BLOCK = 128 };

/* The scale that makes the greatest number of the block from (row, col) on e4m3's greatest. */
static inline float fp8_scale_of(const float *w, uint64_t rows, uint64_t cols, uint64_t row,
                                 uint64_t col)
{
    enum { TOP = 448 };
    float most = 1e-12f;
    for (uint64_t r = row; r < rows && r < row + FP8_BLOCK; r++)
        for (uint64_t c = col; c < cols && c < col + FP8_BLOCK; c++)
            most = fmaxf(most, fabsf(w[r * cols + c]));
    return most / TOP;
}

static inline void fp8_add(struct made_file *f, const struct tensor *t)
{
    const uint64_t rows = t->dims[0], cols = t->dims[1];
    const uint64_t across = (cols + FP8_BLOCK - 1) / FP8_BLOCK,
                   down = (rows + FP8_BLOCK - 1) / FP8_BLOCK;
    float *w = made_floats(t), *scales = malloc(down * across * sizeof(*scales));
    uint8_t *codes = malloc(rows * cols);
    char name[300];
    assert_true(scales && codes);
    for (uint64_t i = 0; i < down * across; i++)
        scales[i] = fp8_scale_of(w, rows, cols, i / across * FP8_BLOCK, i % across * FP8_BLOCK);
    for (uint64_t i = 0; i < rows * cols; i++) {
        const uint64_t at = i / cols / FP8_BLOCK * across + i % cols / FP8_BLOCK;
        codes[i] = e4m3_of_f32(w[i] / scales[at]);
    }
    made_add_as(f, t->name, "F8_E4M3", codes, rows * cols, t->dims);
    snprintf(name, sizeof(name), "%s_scale_inv", t->name);
    made_add(f, name, scales, down, across);
    free(w), free(scales), free(codes);
}

/* dir/config.json: that of `base`, and how its weights are stored. */
static inline void fp8_config(const char *base, const char *dir)
{
    static char was[8192], now[sizeof(was) + 256];
    char path[PATH_LEN + 32];
    snprintf(path, sizeof(path), "%s/config.json", base);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    was[fread(was, 1, sizeof(was) - 1, f)] = 0;
    assert_int_equal(fclose(f), 0);
    assert_int_equal(was[0], '{');
    snprintf(now, sizeof(now),
             "{\"quantization_config\": {\"quant_method\": \"fp8\", \"activation_scheme\": "
             "\"dynamic\", \"weight_block_size\": [%d, %d]},%s",
             FP8_BLOCK, FP8_BLOCK, was + 1);
    made_text(dir, "config.json", now);
}

/* Writes such a checkpoint of the one in `base`, one file in bfloat16, to `dir`, which exists. */
static inline void made_fp8(const char *base, const char *dir)
{
    struct err e = ERR_INIT;
    struct checkpoint c;
    struct made_file file = {BUF_INIT, BUF_INIT};
    if (checkpoint_open(&c, base, NULL, &e))
        fail_msg("%s", e.msg);
    for (uint32_t i = 0; i < c.files[0].n; i++) {
        const struct tensor *t = &c.files[0].tensors[i];
        const uint64_t dims[2] = {t->dims[0], t->n_dims > 1 ? t->dims[1] : 0};
        assert_int_equal(t->type, T_BF16);
        if (strstr(t->name, "_proj.weight"))
            fp8_add(&file, t);
        else
            made_add_as(&file, t->name, "BF16", t->data, (size_t)t->bytes, dims);
    }
    checkpoint_close(&c);
    made_write(&file, dir, "model.safetensors");
    fp8_config(base, dir);
}

static inline void fp8_remove(const char *dir)
{
    static const char *const made[] = {"model.safetensors", "config.json"};
    char path[PATH_LEN + 32];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, made[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}
#endif
