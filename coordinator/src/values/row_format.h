/*
 * row_format.h
 *		How rows travel: COPY BINARY fields, with text for types that embed OIDs.
 *
 * Binary send/receive is used where the bytes mean the same on every node.
 * Types whose binary form holds OIDs (regclass and its like, arrays of user-defined types,
 * composites, ...) or that lack send or receive functions travel as text: a
 * remote SELECT must cast such columns to text (row_format_is_binary() tells),
 * and a write stream of a table with such a column uses COPY's text format.
 */
#ifndef STRATA_ROW_FORMAT_H
#define STRATA_ROW_FORMAT_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "lib/stringinfo.h"

extern bool row_format_is_binary(Oid type);

/*
 * Object identifier types, regclass and its like: values are OIDs, of which each node has its own, and
 * travel as names.  The catalog of the objects; InvalidOid for all other types, and for aclitem, which names two roles.
 */
extern Oid row_format_object_class(Oid type);

/* The object identifier type that a type is, or is made of in any depth; InvalidOid: there is none in it. */
extern Oid row_format_find_object_identifier(Oid type);

/*
 * What `find` finds in the types that a type is made of: an array's elements, a domain's base, a range's
 * bounds, the columns of a composite type.  InvalidOid: nothing.
 */
extern Oid row_format_find_part(Oid type, Oid (*find)(Oid));

/* Decoder of COPY BINARY tuples into Datums of `desc`; what is not binary arrives as text. */
typedef struct RowDecoder RowDecoder;
extern RowDecoder *row_decoder_create(TupleDesc desc, MemoryContext context);

/* Length of the file header with which a stream begins.  ERROR 08P01 when there is none. */
extern int row_decoder_skip_header(const char *data, int length);

/*
 * Decode one COPY BINARY tuple (without file header; field count first).
 * Values are allocated in CurrentMemoryContext.  ERROR 08P01 on malformed bytes or a wrong field
 * count.
 * Returns false for the trailer (-1).  data[length] must exist, and bytes behind a
 * field are overwritten for a moment (libpq's row buffers allow both).
 */
extern bool
row_decoder_decode(RowDecoder *decoder, char *data, int length, Datum *values, bool *nulls);

/* Encoder of rows for COPY FROM STDIN; dropped and generated columns are left out. */
typedef struct RowEncoder RowEncoder;
extern RowEncoder *row_encoder_create(TupleDesc desc, MemoryContext context);
extern bool row_encoder_is_binary(const RowEncoder *encoder);

/* Number of columns that travel. */
extern int row_encoder_column_count(const RowEncoder *encoder);

/* What stands before the first and after the last row of a stream; nothing in the text format. */
extern void row_encoder_begin(const RowEncoder *encoder, StringInfo buffer);
extern void row_encoder_end(const RowEncoder *encoder, StringInfo buffer);

/* Append one row; CurrentMemoryContext takes garbage. */
extern void
row_encoder_append(RowEncoder *encoder, StringInfo buffer, const Datum *values, const bool *nulls);

/* Has the row more than ROW_LARGE_BYTES, in the binary format? */
#define ROW_LARGE_BYTES (1024 * 1024)
extern bool row_encoder_is_large(const RowEncoder *encoder, const Datum *values, const bool *nulls);

/* Takes the next bytes of a stream. */
typedef void (*RowSink)(void *argument, const char *data, int length);

/*
 * Encode a large row into a sink, its values without copying them into a buffer: a row may have
 * several of 1 GB.  The types' functions, which may run anything, are called before the sink is.
 */
extern void row_encoder_write_large(RowEncoder *encoder, const Datum *values, const bool *nulls,
									RowSink sink, void *argument);

/* Append value as an SQL literal with its type, schema-qualified: '...'::public.mood, NULL::... */
extern void row_format_append_literal(StringInfo buffer, Oid type, Datum value, bool isnull);

/* Literals of rows in one statement, which is a string: so many bytes leave room for the rest. */
#define ROW_LITERALS_BYTES_MAX (MaxAllocSize / 2)

/*
 * While SQL is made from values or expressions, the session's settings must not
 * colour it: a statement may be kept and sent when they have changed.  Between
 * these two calls output functions write what every session reads alike (ISO dates, all
 * digits of floats) and all names outside of pg_catalog come out qualified.  The return
 * value of the first is to be given to the second; an error undoes it, too.
 */
extern int row_format_enter_sql_mode(void);
extern void row_format_leave_sql_mode(int nest_level);

#endif
