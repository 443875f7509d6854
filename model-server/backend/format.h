/* format.h - how a matrix is stored in few bits, as a value that loaders and devices share.
 *
 * A number is ((n(code) - zero) * scale * by - offset * less) * factor. n(code) is the code
 * itself, or its entry in the format's table. Products are exact in fp32 and the difference is
 * rounded once. A factor belongs to a whole row, and devices multiply sums with it at the end.
 * Formats differ only in which of the terms exist, and how many columns share them. Each format
 * is a row of format.c. A row whose group size the checkpoint chooses is copied and completed.
 *
 * The arithmetic of a product is a separate value: enum arith. backend_ops.weight_takes() says
 * whether a device has kernels for both together. */
#ifndef MODEL_SERVER_BACKEND_FORMAT_H
#define MODEL_SERVER_BACKEND_FORMAT_H
#include <stdbool.h>
#include <stdint.h>

enum element {
    ELEMENT_INT,   /* n(code) = code */
    ELEMENT_TABLE, /* n(code) = table[code], of 16 codes */
    ELEMENT_E4M3   /* a code is an 8-bit floating-point number; nothing is subtracted */
};
enum scale_kind { SCALE_F32, SCALE_BF16, SCALE_F16 };

struct format {
    const char *name;
    enum element element;
    enum scale_kind scale;
    uint32_t bits;  /* of a code: 2 to 8 */
    uint32_t group; /* columns that share `by` and `less`: 16 or 32; 0: all of a row */
    uint32_t block; /* columns that share `scale` and `offset`: a power of two from 16 to 256, with
                       e4m3 from 32 to 2048, of which the last may be incomplete; 0: all of a row */
    uint32_t zero;  /* n(code) of 0; 0 where there are offsets or zero points */
    bool offsets;   /* else `offset` is zero, or with `zeros` equal to the scale */
    bool nested;    /* else `by` is 1, and so is `less` unless there are `zeros` */
    bool zeros;     /* each group has its own zero point, `less` */
    const uint8_t *table;
    bool ordered; /* columns were sorted so that groups are contiguous: struct mat_codes.order */
    bool factors; /* each row has a `factor`; else it is 1 */
    bool rounded; /* the table has the checkpoint's values rounded to 8 bits: for INT8 products only
                   */
};

/* Formats with a fixed shape. Those up to FP8 are produced at load by --quantize, the others are
 * found in checkpoints. ZEROS_*: codes with a scale and a zero point for a group whose size the
 * checkpoint chooses (GPTQ, AWQ, compressed-tensors); CODES_*: the same with a constant zero. */
enum format_id {
    FORMAT_INT8,
    FORMAT_INT4,
    FORMAT_FP8,
    FORMAT_Q4_0,
    FORMAT_Q4_1,
    FORMAT_Q5_0,
    FORMAT_Q5_1,
    FORMAT_Q8_0,
    FORMAT_Q2_K,
    FORMAT_Q3_K,
    FORMAT_Q4_K,
    FORMAT_Q5_K,
    FORMAT_Q6_K,
    FORMAT_IQ4_NL,
    FORMAT_IQ4_XS,
    FORMAT_MXFP4,
    FORMAT_TERNARY, /* TQ1_0, TQ2_0 */
    FORMAT_Q1_0,
    FORMAT_Q2_0,
    FORMAT_IQ1_S,
    FORMAT_IQ1_M,
    FORMAT_IQ2_XXS,
    FORMAT_IQ2_XS,
    FORMAT_IQ2_S,
    FORMAT_IQ3_XXS,
    FORMAT_IQ3_S,
    FORMAT_NVFP4,
    FORMAT_NF4, /* bitsandbytes' */
    FORMAT_FP4,
    FORMAT_N
};
extern const struct format formats[FORMAT_N];

/* Scales of a row of `cols` numbers. */
static inline uint32_t format_blocks(const struct format *f, uint32_t cols)
{
    return f->block ? (cols + f->block - 1) / f->block : 1;
}

/* How a product rounds the activations, independent of the weights.
 *   EXACT  not at all: activations, products and sums are fp32.
 *   HALF   the device may round them to the weights' 16-bit type where it is faster so: bfloat16
 *          on CPUs with AMX or a full-rate vdpbf16ps, whose sums are fp32; float16 on CPUs with
 *          AVX512-FP16, whose sums are float16 for 128 columns, then fp32. describe() says whether
 *          it does.
 *   INT8   they are rounded to 8 bits, -127 to 127, with an fp32 scale for a token and 32 columns
 *          (W8A8: for a token). A number is off by at most 1/254 of the greatest of its group; the
 *          rms error of a product is about 0.5 % of it. Sums within a group are exact, over groups
 *          fp32. As llama.cpp computes with packed weights.
 * Results stay independent of batch and chunking in all of them. */
enum arith { ARITH_EXACT, ARITH_HALF, ARITH_INT8 };
const char *arith_name(enum arith a); /* "exact", "16", "8" */

/* Values of --activations: the fewest bits to which a product may round activations. AUTO: 8 with
 * weights that are packed in at most 8 bits, unless --dtype says otherwise; else as --dtype and
 * --quantize say. */
enum activations { ACTIVATIONS_AUTO, ACTIVATIONS_EXACT, ACTIVATIONS_16, ACTIVATIONS_8 };
/* Arithmetic of products with plain 16-bit weights, and with packed ones. `dtype`: the requested
 * enum dtype, or -1. */
enum arith activations_plain(enum activations a, int dtype);
enum arith activations_packed(enum activations a, int dtype);

/* The arithmetic of products with codes of a format: no device rounds activations to 8 bits for
 * floating-point codes. */
static inline enum arith format_arith(const struct format *f, enum arith a)
{
    return f->element == ELEMENT_E4M3 ? ARITH_EXACT : a;
}

/* A device's support of a format in an arithmetic. */
enum take {
    TAKE_NO,    /* it has no such product */
    TAKE_WIDEN, /* the device needs the numbers, in 16 bits or more */
    TAKE_NATIVE /* the device stores the format and multiplies with it */
};
#endif
