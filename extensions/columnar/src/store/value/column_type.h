/*
 * column_type.h
 *		How the store holds a column's values: five forms for all of PostgreSQL's types.
 *
 * Derived from the attribute alone, never stored.  The form of a column cannot change
 * without a rewrite of the table; sign, order and hash function can (int4 to oid, text
 * to character, another collation), so what depends on them says what it was made for.
 * Domains are held as their base type.
 */
#ifndef COLUMNAR_COLUMN_TYPE_H
#define COLUMNAR_COLUMN_TYPE_H

#include "store/value/format.h"

#include "access/tupdesc.h"
#include "fmgr.h"

typedef enum ColumnForm
{
	FORM_INT,	  /* passed by value: held as int64 (zero-extended if is_unsigned) */
	FORM_FLOAT,	  /* float4, float8: held as their bits in an int64 (float4: low 32) */
	FORM_NUMERIC, /* numeric: the bytes after the varlena header; encoded as scaled integers */
	FORM_FIXED,	  /* by reference with a fixed length: uuid, interval, name, point ... */
	FORM_BYTES	  /* varlena (the bytes after its header, detoasted) and cstring (without the 0) */
} ColumnForm;

/* How a zone map's bounds are stored and computed. */
typedef enum ZoneOrder
{
	ZONE_NONE, /* the type has no default btree operator class */
	ZONE_INT, /* order of the int64 is the type's order: int2/4/8, date, time, timestamp(tz), money, bool, oid, "char" */
	ZONE_FLOAT, /* order of float8, NaN largest, -0 = 0 */
	ZONE_BYTES, /* memcmp order of (for bpchar: blank-trimmed) bytes; see bytes_are_ordered */
	ZONE_COMPARE /* the type's btree comparison function; values over ZONE_BOUND_MAX bytes give no bounds */
} ZoneOrder;

typedef struct ColumnType
{
	Oid typid; /* base type */
	int32 typmod;
	Oid collation;
	int16 length; /* as pg_attribute.attlen */
	bool byval;
	char align;
	ColumnForm form;
	bool is_unsigned;
	bool trim_blanks; /* character(n): trailing blanks do not count in comparisons */
	ZoneOrder zone;
	/* ZONE_BYTES: is memcmp the type's order (bytea, uuid, text under C), or only good for equality? */
	bool bytes_are_ordered;
	FmgrInfo compare; /* ZONE_COMPARE and FORM_NUMERIC: btree comparison; fn_oid invalid if none */
	FmgrInfo hash; /* extended hash function of the default hash opclass; fn_oid invalid if none */
} ColumnType;

/* Fills *type; function look-ups are allocated in the current memory context. Needs a catalog. */
extern void column_type_init(ColumnType *type, Form_pg_attribute attribute);

/* The int64 that holds a by-value datum of FORM_INT or FORM_FLOAT, and back. */
extern int64 column_type_to_int(const ColumnType *type, Datum value);
extern Datum column_type_from_int(const ColumnType *type, int64 value);

/*
 * A datum of FORM_NUMERIC, FIXED or BYTES from its stored bytes, allocated in the
 * current context and aligned as every type needs (MAXALIGN; 4-byte varlena header).
 */
extern Datum column_type_from_bytes(const ColumnType *type, const char *bytes, uint32 length);

#endif
