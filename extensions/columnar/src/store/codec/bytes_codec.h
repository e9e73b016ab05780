/*
 * bytes_codec.h
 *		Byte strings: raw with lengths, dictionary per chunk, FSST symbols per chunk.
 *
 * A chunk that is a dictionary or uses FSST has one table for all its blocks
 * (the "model"), trained on a sample of the chunk and stored before the blocks;
 * each block says by its first byte which encoding it has, so that a block that
 * does badly with the model stays raw.
 */
#ifndef COLUMNAR_BYTES_CODEC_H
#define COLUMNAR_BYTES_CODEC_H

#include "store/codec/column_block.h"
#include "store/value/column_values.h"

typedef enum BytesEncoding
{
	BYTES_RAW = 0,		  /* raw: lengths (integer_codec), then the bytes */
	BYTES_DICTIONARY = 1, /* dictionary: codes (integer_codec) into the chunk's dictionary */
	BYTES_FSST = 2,		  /* fsst: lengths, then the symbols of all values */
	BYTES_CONSTANT = 3	  /* constant: one value */
} BytesEncoding;

typedef struct BytesModel BytesModel;

/*
 * Looks at all values and decides for a dictionary (when it, codes included, is
 * clearly smaller and has at most 65536 entries), for FSST (average length >= 8 or
 * so and >= 15 % saved on a sample, and `fsst` allows it) or for none (returns NULL).
 * FORM_FIXED, BYTES and NUMERIC values alike.  Deduplicates by bytes.  The model
 * points into the values and encodes only these.
 */
extern BytesModel *bytes_model_train(const ColumnValues *values, bool fsst);
/* Number of dictionary entries; 0 if the model is no dictionary. */
extern uint32 bytes_model_nentries(const BytesModel *model);
extern void bytes_model_write(const BytesModel *model, ByteBuffer *into);
/* Reads a model back: pointers into the bytes, which must live as long.  ERROR on damage. */
extern BytesModel *bytes_model_read(ByteCursor *cursor);
extern Dictionary *bytes_model_dictionary(BytesModel *model);

/* Encodes rows [first, first + nrows) of values; model may be NULL. NULL rows have length 0. */
extern BytesEncoding bytes_encode(const BytesModel *model, const ColumnValues *values, uint32 first,
								  uint32 nrows, ByteBuffer *into);

/*
 * Decodes to BLOCK_BYTES (starts, lengths) or BLOCK_CODES.  Raw bytes are pointed
 * to in place; FSST decompresses into *arena (reset here, owned by the caller).
 * A dictionary code out of range, lengths past the end ...: ERROR.
 */
extern void bytes_decode(BytesModel *model, ByteCursor *cursor, uint32 nrows, ByteBuffer *arena,
						 ColumnBlock *block);

#endif
