/* format.c - the formats, one row each. */
#include "model-server/backend/backend.h"
#include <stddef.h>

/* The numbers of e2m1 (OCP Microscaling Formats v1.0) doubled, plus 12; those of ggml's IQ4 kinds
 * plus 128. */
static const uint8_t e2m1[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
static const uint8_t iq4[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                129, 141, 153, 166, 181, 197, 217, 241};

/* ggml's other IQ types: the value of a 2-bit code, and above it with the opposite sign; of 3
 * bits the same. Those of IQ1 are -1, 0 and 1, shifted up or down by an eighth, times eight. */
static const uint8_t iq1[16] = {9 - 7, 9 + 1, 9 + 9, 9, 9 - 9, 9 - 1, 9 + 7, 9,
                                9,     9,     9,     9, 9,     9,     9,     9};
static const uint8_t iq2[16] = {43 + 8, 43 + 25, 43 + 43, 43, 43 - 8, 43 - 25, 43 - 43, 43,
                                43,     43,      43,      43, 43,     43,      43,      43};
static const uint8_t iq3_xxs[16] = {62 + 4,  62 + 12, 62 + 20, 62 + 28, 62 + 36, 62 + 44,
                                    62 + 52, 62 + 62, 62 - 4,  62 - 12, 62 - 20, 62 - 28,
                                    62 - 36, 62 - 44, 62 - 52, 62 - 62};
static const uint8_t iq3_s[16] = {16, 18, 20, 22, 24, 26, 28, 30, 14, 12, 10, 8, 6, 4, 2, 0};

/* bitsandbytes' normal floats (arXiv 2305.14314) times 112, the factor up to 127 with the
 * smallest rounding error: a 370th of the squared error of 4 bits. Its fp4 times 120, which
 * rounds only the smallest one. */
static const uint8_t nf4[16] = {0,   34,  53,  68,  80,  91,  102, 112,
                                121, 130, 140, 150, 161, 175, 193, 224};
static const uint8_t bnb_fp4[16] = {120, 121, 200, 240, 160, 180, 140, 150,
                                    120, 119, 40,  0,   80,  60,  100, 90};

/* clang-format off */
const struct format formats[FORMAT_N] = {
    [FORMAT_INT8]   = {"int8",   ELEMENT_INT,   SCALE_F32,  8, 0,  0,   128},
    [FORMAT_INT4]   = {"int4",   ELEMENT_INT,   SCALE_BF16, 4, 32, 32,  8},
    [FORMAT_FP8]    = {"fp8",    ELEMENT_E4M3,  SCALE_F32,  8, 0,  0,   0},
    [FORMAT_Q4_0]   = {"q4_0",   ELEMENT_INT,   SCALE_F16,  4, 32, 32,  8},
    [FORMAT_Q4_1]   = {"q4_1",   ELEMENT_INT,   SCALE_F16,  4, 32, 32,  0,   .offsets = true},
    [FORMAT_Q5_0]   = {"q5_0",   ELEMENT_INT,   SCALE_F16,  5, 32, 32,  16},
    [FORMAT_Q5_1]   = {"q5_1",   ELEMENT_INT,   SCALE_F16,  5, 32, 32,  0,   .offsets = true},
    [FORMAT_Q8_0]   = {"q8_0",   ELEMENT_INT,   SCALE_F16,  8, 32, 32,  128},
    [FORMAT_Q2_K]   = {"q2_k",   ELEMENT_INT,   SCALE_F16,  2, 16, 256, 0,   .offsets = true, .nested = true},
    [FORMAT_Q3_K]   = {"q3_k",   ELEMENT_INT,   SCALE_F16,  3, 16, 256, 4,   .nested = true},
    [FORMAT_Q4_K]   = {"q4_k",   ELEMENT_INT,   SCALE_F16,  4, 32, 256, 0,   .offsets = true, .nested = true},
    [FORMAT_Q5_K]   = {"q5_k",   ELEMENT_INT,   SCALE_F16,  5, 32, 256, 0,   .offsets = true, .nested = true},
    [FORMAT_Q6_K]   = {"q6_k",   ELEMENT_INT,   SCALE_F16,  6, 16, 256, 32,  .nested = true},
    [FORMAT_IQ4_NL] = {"iq4_nl", ELEMENT_TABLE, SCALE_F16,  4, 32, 32,  128, .table = iq4},
    [FORMAT_IQ4_XS] = {"iq4_xs", ELEMENT_TABLE, SCALE_F16,  4, 32, 256, 128, .nested = true, .table = iq4},
    [FORMAT_TERNARY] = {"ternary", ELEMENT_INT, SCALE_F16,  2, 32, 256, 1},
    [FORMAT_Q1_0]   = {"q1_0",   ELEMENT_INT,   SCALE_F16,  2, 32, 32,  1},
    [FORMAT_Q2_0]   = {"q2_0",   ELEMENT_INT,   SCALE_F16,  2, 32, 32,  1},
    [FORMAT_MXFP4]  = {"mxfp4",  ELEMENT_TABLE, SCALE_F16,  4, 32, 32,  12,  .table = e2m1},
    [FORMAT_NVFP4]  = {"nvfp4",  ELEMENT_TABLE, SCALE_F16,  4, 16, 16,  12,  .table = e2m1},
    [FORMAT_NF4]    = {"nf4",    ELEMENT_TABLE, SCALE_F16,  4, 32, 32,  112, .factors = true, .rounded = true, .table = nf4},
    [FORMAT_FP4]    = {"fp4",    ELEMENT_TABLE, SCALE_F16,  4, 32, 32,  120, .factors = true, .rounded = true, .table = bnb_fp4},
    [FORMAT_IQ1_S]  = {"iq1_s",  ELEMENT_TABLE, SCALE_F16,  3, 32, 256, 9,   .nested = true, .factors = true, .table = iq1},
    [FORMAT_IQ1_M]  = {"iq1_m",  ELEMENT_TABLE, SCALE_F16,  3, 16, 256, 9,   .nested = true, .factors = true, .table = iq1},
    [FORMAT_IQ2_XXS] = {"iq2_xxs", ELEMENT_TABLE, SCALE_F16, 3, 32, 256, 43, .nested = true, .factors = true, .table = iq2},
    [FORMAT_IQ2_XS] = {"iq2_xs", ELEMENT_TABLE, SCALE_F16,  3, 16, 256, 43,  .nested = true, .factors = true, .table = iq2},
    [FORMAT_IQ2_S]  = {"iq2_s",  ELEMENT_TABLE, SCALE_F16,  3, 16, 256, 43,  .nested = true, .factors = true, .table = iq2},
    [FORMAT_IQ3_XXS] = {"iq3_xxs", ELEMENT_TABLE, SCALE_F16, 4, 32, 256, 62, .nested = true, .factors = true, .table = iq3_xxs},
    [FORMAT_IQ3_S]  = {"iq3_s",  ELEMENT_TABLE, SCALE_F16,  4, 32, 256, 15,  .nested = true, .table = iq3_s},
};
/* clang-format on */

const char *arith_name(enum arith a)
{
    static const char *const names[] = {"exact", "16", "8"};
    return (unsigned)a < sizeof(names) / sizeof(names[0]) ? names[a] : "unknown";
}

enum arith activations_plain(enum activations a, int dtype)
{
    if (a != ACTIVATIONS_AUTO)
        return a == ACTIVATIONS_EXACT ? ARITH_EXACT : ARITH_HALF;
    return dtype == DT_F16 || dtype == DT_BF16 ? ARITH_HALF : ARITH_EXACT;
}

enum arith activations_packed(enum activations a, int dtype)
{
    if (a != ACTIVATIONS_AUTO)
        return a == ACTIVATIONS_8 ? ARITH_INT8 : ARITH_EXACT;
    return dtype < 0 ? ARITH_INT8 : ARITH_EXACT;
}
