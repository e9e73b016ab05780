/*
 * numeric_codec.h
 *		numeric as scaled integers: an int64 or int128 mantissa and one scale per block.
 *
 * A numeric is its digits and its display scale (1.1 is not 1.10 to the eye).
 * Values of one display scale s are mantissas m = value * 10^s; with a typmod all
 * of a column are.  NaN, infinities, other scales and what passes int128 are
 * exceptions: kept as the type's own bytes beside the block.  A block with many
 * of them is written as bytes altogether.  Decoding gives back the very bytes
 * that numeric's own functions would produce.
 */
#ifndef COLUMNAR_NUMERIC_CODEC_H
#define COLUMNAR_NUMERIC_CODEC_H

#include "store/codec/bytes_codec.h"
#include "store/value/numeric_scaled.h"

typedef enum NumericEncoding
{
	NUMERIC_INT64 = 0,
	NUMERIC_INT128 = 1, /* base + int64 differences where that is enough, else halves */
	NUMERIC_BYTES = 2	/* a block of bytes_codec */
} NumericEncoding;

/*
 * A model for the blocks that will be NUMERIC_BYTES (bytes_model_train()); NULL, soon,
 * when a sample says that most values are scaled integers, which need none.
 */
extern BytesModel *numeric_model_train(const ColumnValues *values);

/* At least one of the values is not NULL. */
extern NumericEncoding numeric_encode(const BytesModel *model, const ColumnValues *values,
									  uint32 first, uint32 nrows, ByteBuffer *into);
extern void numeric_decode(BytesModel *model, ByteCursor *cursor, uint32 nrows, ByteBuffer *arena,
						   ColumnBlock *block);

#endif
