/*
 * float_codec.h
 *		Blocks of float8 and float4: ALP (decimals as integers, with exceptions) or raw bits.
 *
 * ALP: most stored floats were written as decimals; for a number of digits e,
 * round(v * 10^e) is an integer that divided by 10^e gives v back exactly, bit by
 * bit.  What does not (and -0, NaN, infinities) is an exception.
 */
#ifndef COLUMNAR_FLOAT_CODEC_H
#define COLUMNAR_FLOAT_CODEC_H

#include "store/value/format.h"

typedef enum FloatEncoding
{
	FLOAT_RAW = 0,	  /* raw: the bits, 8 or 4 bytes each */
	FLOAT_ALP = 1,	  /* alp */
	FLOAT_INTEGER = 2 /* the bits as a block of integer_codec (constants, few values, runs) */
} FloatEncoding;

/*
 * Encodes bits (as FORM_FLOAT holds them; is_single: float4) of nvalues rows and
 * appends them; returns the encoding chosen (the smallest).
 */
extern FloatEncoding
float_encode(const int64 *bits, uint32 nvalues, bool is_single, ByteBuffer *into);

/* The inverse, to doubles (a float4 widened: exact, its bits come back by narrowing). */
extern void
float_decode(ByteCursor *cursor, uint32 nvalues, bool is_single, double *values, bool *constant);

/*
 * A float4's bits as a double and back, exact for every NaN too: the processor's
 * own conversions make signalling NaNs quiet.
 */
static inline double
float_widen_single(uint32 bits)
{
	float4 single;
	double value;
	uint64 wide;

	if ((bits & 0x7fffffff) > 0x7f800000)
	{
		wide = (uint64) (bits & 0x80000000) << 32 | UINT64CONST(0x7ff0000000000000) |
			   (uint64) (bits & 0x007fffff) << 29;
		memcpy(&value, &wide, sizeof(value));
		return value;
	}
	memcpy(&single, &bits, sizeof(single));
	return single;
}

static inline uint32
float_narrow_single(double value)
{
	uint64 wide;
	float4 single;
	uint32 bits;

	memcpy(&wide, &value, sizeof(wide));
	if (value != value)
		return (uint32) (wide >> 32 & 0x80000000) | 0x7f800000 | (uint32) (wide >> 29 & 0x007fffff);
	single = value;
	memcpy(&bits, &single, sizeof(bits));
	return bits;
}

#endif
