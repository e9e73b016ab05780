/*
 * row_group_cache.h
 *		What a backend remembers between row groups: the column types of a table, and
 *		the footers read.
 */
#ifndef COLUMNAR_ROW_GROUP_CACHE_H
#define COLUMNAR_ROW_GROUP_CACHE_H

#include "store/value/column_type.h"

#include "utils/rel.h"

/* A row group for caches: its bytes, since they are not changed; hashed as bytes. */
typedef struct RowGroupKey
{
	CompatFileLocator file;
	uint32 crc; /* of its footer */
	uint64 group_id;
} RowGroupKey;

StaticAssertDecl(sizeof(RowGroupKey) == sizeof(CompatFileLocator) + sizeof(uint32) + sizeof(uint64),
				 "a key that is hashed as bytes has no padding");

/* Column types of a relation, made when first asked for. */
typedef struct RelationTypes RelationTypes;

/*
 * The types of the columns of `descriptor`, which is the relation's or (while ALTER TABLE
 * rewrites it) what that was before.  They live at least as long as the
 * current memory context, which gives the reference back when it is deleted or reset.
 */
extern RelationTypes *row_group_cache_types(Relation relation, TupleDesc descriptor);
/* The type of an attribute (1 .. number of attributes of the relation); NULL for a dropped one. */
extern const ColumnType *row_group_cache_type(RelationTypes *types, AttrNumber attribute);

/* Are they still the types of the relation? */
extern bool row_group_cache_is_current(const RelationTypes *types, Relation relation);

/* int8, the type of the chunk of row numbers. */
extern const ColumnType *row_group_number_type(void);

/* Copies a footer that is remembered to `into` (length bytes); false if it is not. */
extern bool row_group_cache_get_footer(const RowGroupKey *key, uint32 length, char *into);
/* Remembers a footer whose CRC was verified. */
extern void row_group_cache_put_footer(const RowGroupKey *key, uint32 length, const char *bytes);

#endif
