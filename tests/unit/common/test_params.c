/* The rows of common/params.def against the fields of the contract: a row whose number or type is
 * wrong would be packed as another parameter. */
#include "common/params.h"
#include "proto/generate.pb-c.h"
#include "tests/unit/test.h"
#include <string.h>

#define WIRE_F32 PROTOBUF_C_TYPE_FLOAT
#define WIRE_U32 PROTOBUF_C_TYPE_UINT32
#define WIRE_I32 PROTOBUF_C_TYPE_INT32

static const struct row {
    const char *name, *tgi, *openai, *lmtp;
    uint32_t number;
    ProtobufCType type;
    double neutral, low, high;
} rows[] = {
#define PARAM(kind, type, name, member, neutral, low, high, taken, words, tgi, openai, lmtp,       \
              number, where)                                                                       \
    {#name, tgi, openai, lmtp, number, WIRE_##type, neutral, low, high},
#include "common/params.def"
};
enum { N = sizeof(rows) / sizeof(rows[0]) };

TEST(rows_have_their_fields)
{
    for (size_t i = 0; i < N; i++) {
        const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(
            &generate__v3__next_token_chooser_parameters__descriptor, rows[i].name);
        if (!f || f->id != rows[i].number || f->type != rows[i].type)
            fail_msg("%s: not the field %u of its type", rows[i].name, rows[i].number);
        if (rows[i].number >= PARAM_OWN_FIELDS && !param_bit(rows[i].number))
            fail_msg("%s: %u has no place in Info.sampling_fields", rows[i].name, rows[i].number);
    }
}

TEST(a_name_means_one_row)
{
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < i; k++) {
            const struct row *a = &rows[i], *b = &rows[k];
            assert_int_not_equal(a->number, b->number);
            assert_false(a->tgi && b->tgi && !strcmp(a->tgi, b->tgi));
            assert_false(a->openai && b->openai && !strcmp(a->openai, b->openai));
            assert_false(a->lmtp && b->lmtp && !strcmp(a->lmtp, b->lmtp));
        }
}

TEST(neutral_values_are_in_range)
{
    for (size_t i = 0; i < N; i++)
        if (!(rows[i].low <= rows[i].neutral && rows[i].neutral <= rows[i].high))
            fail_msg("%s: %g is not in %g to %g", rows[i].name, rows[i].neutral, rows[i].low,
                     rows[i].high);
}

int main(void) { return tests_run(NULL, NULL); }
