/* bf16_bits.inc.h - numbers rounded to bfloat16, to nearest even, in the lower halves of 32 bits;
 * after the vectors of an instruction set. */

INLINE i16 bf16_bits(v16 v)
{
    i16 u = v_bits(v), mag = i_and(u, i_set(0x7fffffff)), odd = i_and(i_shr(u, 16), i_set(1));
    i16 rounded = i_add(u, i_add(i_set(0x7fff), odd));
    return i_shr(i_above(mag, i_set(0x7f800000), i_or(u, i_set(0x400000)), rounded), 16);
}

/* split_bf16() of kernels.h, parts in the lower halves of 32 bits. The upper halves are numbers
 * that truncation leaves; each rest has 8 bits less. */
INLINE void bf16_split(i16 part[3], v16 v)
{
    const i16 u = v_bits(v), upper = i_set(0xffff0000), zero = i_set(0);
    const i16 mag = i_and(u, i_set(0x7fffffff)), largest = i_set(0x7f7fffff);
    const v16 rest = v_sub(v, i_float(i_and(u, upper)));
    const i16 middle = i_and(v_bits(rest), upper), low = v_bits(v_sub(rest, i_float(middle)));
    part[2] = i_above(mag, largest, bf16_bits(v), i_shr(u, 16));
    part[1] = i_above(mag, largest, zero, i_shr(middle, 16));
    part[0] = i_above(mag, largest, zero, i_shr(low, 16));
}
