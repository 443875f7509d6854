/* Checkpoints whose matrices have different formats, bits or groups. config.json then has patterns
 * of names for them; the types and shapes of the tensors say the same, and are what is read. */
#include "model-server/model/checkpoint/quant/stored.h"
#include <stdio.h>

void stored_vary_group(struct stored_matrix *m, uint64_t n)
{
    const uint64_t cols = (uint64_t)m->cols, group = m->how.group;
    if (n <= 1)
        m->how.group = 0;
    else if ((!group || (cols + group - 1) / group != n) && cols % n == 0)
        m->how.group = (uint32_t)(cols / n);
}

/* One row for each form of compressed-tensors, modelopt and Quark: codes of a type, with a tensor
 * beside them. */
static const struct kind {
    const char *codes;
    enum tensor_type type;
    const char *beside; /* NULL: any */
    const struct stored_format *format;
    uint32_t bits, group;
} kinds[] = {
    {".weight_packed", T_I32, NULL, &stored_packed, 4, 0},
    {".weight_packed", T_U8, ".weight_global_scale", &stored_nvfp4_packed, 4, 16},
    {".weight_packed", T_U8, NULL, &stored_mxfp4_packed, 4, 32},
    {".weight", T_U8, ".weight_scale_2", &stored_nvfp4, 4, 16},
    {".weight", T_U8, NULL, &stored_mxfp4_bytes, 4, 32},
    {".weight", T_F8_E4M3, NULL, &stored_scaled, 8, 0},
    {".weight", T_I8, NULL, &stored_scaled, 8, 0},
};

const struct tensor *stored_beside(const char *base, const char *suffix, stored_find *find,
                                   const void *ctx)
{
    char name[256];
    snprintf(name, sizeof(name), "%s%s", base, suffix);
    return find(ctx, name);
}

static void choose(struct stored *how, const char *base, stored_find *find, const void *ctx)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const struct kind *k = &kinds[i];
        const struct tensor *t = stored_beside(base, k->codes, find, ctx);
        if (!t || t->type != k->type || (k->beside && !stored_beside(base, k->beside, find, ctx)))
            continue;
        how->format = k->format;
        how->bits = k->bits;
        how->group = k->group ? k->group : how->group;
        how->row_block = k->format == &stored_scaled ? how->row_block : 1;
        how->is_float = t->type != T_I8 && t->type != T_I32;
        how->divides = k->format == &stored_nvfp4_packed;
        /* of codes without zero points */
        how->symmetric = !stored_beside(base, ".weight_zero_point", find, ctx);
        return;
    }
}

/* What is left if no kind is found. */
static int check_none(struct stored_matrix *m, struct err *e)
{
    const struct tensor *t = m->t[STORED_CODES];
    return err_set(e, ERR_VALIDATION,
                   "%s: tensor `%s` has dtype %s; matrices stored by %s must be F8_E4M3, I8, U8 or "
                   "I32",
                   t->file, t->name, tensor_type_name(t->type), m->how.method);
}

const struct stored_format stored_mixed = {
    .words = (const char *const[]){"compressed-tensors", "fp8", NULL},
    .suffix = {".weight", ".weight_scale"},
    .lone = ".weight_packed",
    .choose = choose,
    .check = check_none,
};
