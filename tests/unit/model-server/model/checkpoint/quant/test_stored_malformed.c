/* What files are told whose tensors do not fit their config.json, or each other. */
#include "tests/unit/model-server/model/checkpoint/quant/stored_rig.h"

static void refused(const struct stored *how, int rows, int cols, const char *says)
{
    struct stored_matrix m;
    struct err e = ERR_INIT;
    assert_int_equal(stored_open(&m, how, "q", rows, cols, find, NULL, &e), -1);
    assert_int_equal(e.kind, ERR_VALIDATION);
    if (!strstr(e.msg, says) || strchr(e.msg, '\n'))
        fail_msg("`%s` does not say `%s`", e.msg, says);
}

/* The shapes alone: codes and zero points are not looked at. */
static void put_gptq(void)
{
    tensor(STORED_CODES, "q.qweight", T_I32, 4, 8, 40);
    tensor(STORED_ZEROS, "q.qzeros", T_I32, 4, 2, 5);
    put_scales("q.scales", true);
    put_groups("q.g_idx");
}

static void put_mxfp4(void)
{
    tensor(STORED_CODES, "q_blocks", T_U8, 1, 72, 48);
    tensors[STORED_CODES].n_dims = 4;
    memcpy(tensors[STORED_CODES].dims, (uint64_t[]){4, 18, 3, 16}, 32);
    tensor(STORED_SCALES, "q_scales", T_U8, 1, 72, 3);
    tensors[STORED_SCALES].n_dims = 3;
    memcpy(tensors[STORED_SCALES].dims, (uint64_t[]){4, 18, 3}, 24);
}

TEST(test_malformed)
{
    struct rng r = rng_new();
    struct stored how = {&stored_gptq, "gptq", 4, 32, 1, 1, false, false};
    make(&r, 40, 64, 32, 4, 0);
    put_gptq();
    refused(&how, 40, 96, "tensor `q.qweight` has shape [8, 40]; config.json means [12, 40]");
    refused(&how, 40, 60, "tensor `q.qweight`: 60 columns are no multiple of 8");
    put_u32(bytes[STORED_GROUPS] + 1, 7, 2, false);
    refused(&how, 40, 64, "tensor `q.g_idx`: column 7 is of group 2, and there are 2");
    put_u32(bytes[STORED_GROUPS] + 1, 7, (uint32_t)-1, false);
    refused(&how, 40, 64, "column 7 is of group -1");
    put_groups("q.g_idx");
    tensors[STORED_GROUPS].type = T_I64;
    refused(&how, 40, 64, "tensor `q.g_idx` has dtype I64; it must be I32");
    put_groups("q.g_idx");
    how.group = 16;
    refused(&how, 40, 64, "tensor `q.scales` has shape [2, 40]; config.json means [4, 40]");
    how.group = 32;
    tensors[STORED_SCALES].type = T_I16;
    refused(&how, 40, 64, "scales must be F32, F16 or BF16");
    put_scales("q.scales", true);
    tensors[STORED_ZEROS].dims[1] = 4;
    refused(&how, 40, 64, "tensor `q.qzeros` has shape [2, 4]; config.json means [2, 5]");
    tensors[STORED_ZEROS].name = NULL;
    refused(&how, 40, 64, "`q.qweight` has no zero points beside it (`.qzeros`)");
    tensors[STORED_SCALES].name = "other";
    refused(&how, 40, 64, "w: tensor `q.scales` is missing (config.json: weights stored by gptq)");
    tensors[STORED_CODES].name = "other";
    refused(&how, 40, 64, "tensor `q.qweight` is missing");
    how = (struct stored){&stored_scaled, "fp8", 8, 0, 1, 0, true, true};
    make(&r, 40, 64, 0, 8, 0);
    tensor(STORED_CODES, "q.weight", T_I8, 1, 40, 64);
    put_scales("q.weight_scale", false);
    refused(&how, 40, 64, "tensor `q.weight` has dtype I8; it must be F8_E4M3");
    how.is_float = false;
    tensor(STORED_ZEROS, "q.weight_zero_point", T_I8, 1, 40, 1);
    refused(&how, 40, 64, "8-bit weights with zero points are not supported");
}

TEST(test_malformed_mxfp4)
{
    const struct stored how = {&stored_mxfp4, "mxfp4", 4, 32, 1, 0, true, true};
    memset(tensors, 0, sizeof(tensors));
    put_mxfp4();
    refused(&how, 72, 80, "tensor `q_blocks`: 80 columns are no multiple of 32");
    refused(&how, 36, 96, "tensor `q_blocks` has shape [4, 18, 3, 16]; config.json means [36 rows");
    refused(&how, 72, 64, "tensor `q_blocks` has shape");
    tensors[STORED_SCALES].dims[2] = 2;
    refused(&how, 72, 96, "tensor `q_scales` has shape [4, 18, 2]; config.json means [72 rows, 3]");
    tensors[STORED_SCALES].type = T_BF16;
    refused(&how, 72, 96, "tensor `q_scales` has dtype BF16; it must be U8");
    tensors[STORED_CODES].n_dims = 1;
    refused(&how, 72, 96, "tensor `q_blocks` has shape");
    tensors[STORED_SCALES].name = "other";
    refused(&how, 72, 96, "tensor `q_scales` is missing");
}

int main(void) { return tests_run(NULL, NULL); }
