/*
 * fsst.h
 *		FSST: strings as codes of up to 255 symbols of 1 to 8 bytes (Boncz, Neumann,
 *		Leis: FSST, Fast Random Access String Compression, VLDB 2020); code 255
 *		escapes one literal byte.  Every string is decodable alone.
 */
#ifndef COLUMNAR_FSST_H
#define COLUMNAR_FSST_H

#include "store/value/format.h"

#define FSST_ESCAPE 255

typedef struct FsstTable FsstTable;

/* A table trained on a sample of strings (about 16 kB are enough). */
extern FsstTable *fsst_train(const char **strings, const uint32 *lengths, uint32 nstrings);
extern void fsst_write(const FsstTable *table, ByteBuffer *into);
extern FsstTable *fsst_read(ByteCursor *cursor);
/* Appends the codes of one string. */
extern void
fsst_compress(const FsstTable *table, const char *bytes, uint32 length, ByteBuffer *into);
/*
 * Decompresses to `into`, which has room for `capacity` bytes; returns the length.
 * An unknown code or a result longer than capacity is damage.
 */
extern uint64 fsst_decompress(const FsstTable *table, const char *codes, uint32 length, char *into,
							  uint64 capacity);

#endif
