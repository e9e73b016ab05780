/*
 * bytes_model.h
 *		The model of a chunk of byte strings from the inside: for bytes_model.c, which
 *		makes models, and bytes_codec.c, which codes blocks with them.
 *
 * A model that was trained holds the code of each row and belongs to the values it
 * was trained on; one that was read only decodes.  Both lie in the memory context
 * that was current when they were made.
 */
#ifndef COLUMNAR_BYTES_MODEL_H
#define COLUMNAR_BYTES_MODEL_H

#include "store/codec/bytes_codec.h"
#include "store/codec/fsst.h"

#include "utils/memutils.h"

/* Symbols are used where they take at most this part of the bytes. */
#define BYTES_FSST_RATIO 0.85

/* More bytes in one piece stay raw (lengths of FSST's functions have 32 bits). */
#define BYTES_FSST_MAX (UINT64CONST(256) * 1024 * 1024)

typedef enum ModelKind
{
	MODEL_DICTIONARY = 1,
	MODEL_FSST = 2,
	MODEL_PACKED_DICTIONARY = 3
} ModelKind;

struct BytesModel
{
	ModelKind kind;
	Dictionary dictionary;
	uint64 dictionary_bytes; /* sum of the entries' lengths */
	bool has_one_length;	 /* all entries are as long as the first */
	FsstTable *symbols;		 /* of the values, or of the dictionary's bytes */
	ByteBuffer packed;		 /* writing: the dictionary's bytes as symbols */
	uint32 *codes;			 /* writing: of each row */
};

static inline bool
bytes_model_is_dictionary(const BytesModel *model)
{
	return model->kind != MODEL_FSST;
}

/* Decompresses to exactly raw_length bytes, or it is damage; the buffer is reset, and grows. */
extern void bytes_model_unpack(const FsstTable *table, const char *codes, uint64 ncodes,
							   uint64 raw_length, ByteBuffer *into);

/* A length that was read, checked: no value has 1 GB. */
static inline uint32
bytes_model_check_length(int64 length)
{
	if ((uint64) length > MaxAllocSize)
		format_damaged("a value has the length " INT64_FORMAT, length);
	return (uint32) length;
}

static inline bool
bytes_model_is_null(const ColumnValues *values, uint32 row)
{
	return values->nulls != NULL && values->nulls[row];
}

#endif
