/* bf16_bits.inc.h - numbers rounded to bfloat16, to nearest even, in the lower halves of 32 bits;
 * after the vectors of an instruction set. */

INLINE i16 bf16_bits(v16 v)
{
    i16 u = v_bits(v), mag = i_and(u, i_set(0x7fffffff)), odd = i_and(i_shr(u, 16), i_set(1));
    i16 rounded = i_add(u, i_add(i_set(0x7fff), odd));
    return i_shr(i_above(mag, i_set(0x7f800000), i_or(u, i_set(0x400000)), rounded), 16);
}
