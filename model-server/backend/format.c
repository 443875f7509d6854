/* format.c - the formats, a row each. */
#include "model-server/backend/backend.h"
#include <stddef.h>

/* The numbers of e2m1 (OCP Microscaling Formats v1.0) doubled, plus 12; those of ggml's IQ4 kinds
 * plus 128. */
static const uint8_t e2m1[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
static const uint8_t iq4[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                129, 141, 153, 166, 181, 197, 217, 241};

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
    [FORMAT_MXFP4]  = {"mxfp4",  ELEMENT_TABLE, SCALE_F16,  4, 32, 32,  12,  .table = e2m1},
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
