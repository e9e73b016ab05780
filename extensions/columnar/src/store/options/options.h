/*
 * options.h
 *		Options of a columnar table, kept as its security label of provider
 *		"strata_columnar".
 *
 * Why a label: reloptions of tables belong to core, and a catalog of our own
 * would be loaded after the data by pg_restore.  A label is transactional, is
 * dumped with the table's definition and before its data, follows renames and
 * pg_upgrade, and goes away with the table.  A partition without a label has its
 * nearest ancestor's options.
 *
 * Text of a label: "compression=cold, compression_level=9, row_group_rows=10000,
 * order_by=(a, b DESC NULLS LAST), bloom=(c, d)"; written by
 * alter_columnar_table_set(), checked whenever a label is set.
 */
#ifndef COLUMNAR_OPTIONS_H
#define COLUMNAR_OPTIONS_H

#include "store/chunk/chunk.h"

#include "nodes/pg_list.h"
#include "utils/rel.h"

#define OPTIONS_PROVIDER "strata_columnar"

typedef enum CompressionRule
{
	COMPRESSION_HOT,  /* lz4 where it saves 10 %, numbers uncompressed (default) */
	COMPRESSION_COLD, /* zstd where it saves 3 % */
	COMPRESSION_NONE,
	COMPRESSION_LZ4, /* always tried, on numbers too, kept where it saves anything */
	COMPRESSION_ZSTD
} CompressionRule;

typedef struct OrderColumn
{
	AttrNumber attribute;
	bool descending;
	bool nulls_first;
} OrderColumn;

typedef struct TableOptions
{
	CompressionRule compression;
	int compression_level; /* zstd: 1 .. 19 */
	int row_group_rows;	   /* 1024 .. ROW_GROUP_ROWS_MAX */
	int norder;
	OrderColumn *order; /* cluster rows by these when a group is written */
	Bitmapset *bloom;	/* attribute numbers */
} TableOptions;

/*
 * The table's options, defaults (settings.h) where it has none; palloc'ed.  The default compression
 * in the tablespace strata_columnar.cold_tablespace is COMPRESSION_COLD.
 */
extern TableOptions *options_of_table(Relation relation);
/* The same if the table were in this tablespace. */
extern TableOptions *options_in_tablespace(Relation relation, Oid tablespace);

/* How a chunk of attribute `attribute` is to be written. */
extern void
options_of_chunk(const TableOptions *options, AttrNumber attribute, ChunkOptions *chunk);

/* Registers the label provider; called by _PG_init(). */
extern void options_initialize(void);

#endif
