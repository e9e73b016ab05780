/*
 * table_move.h
 *		A table on its way to another tablespace: see table_move.c, which has the whole, and
 *		table_move_copy.c, which copies.
 */
#ifndef COLUMNAR_TABLE_MOVE_H
#define COLUMNAR_TABLE_MOVE_H

#include "compat.h"

#include "utils/hsearch.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "store/pages/file_copy.h"
#include "store/catalog/group_catalog.h"
#include "store/options/options.h"

typedef struct TableMove
{
	Relation table;
	Relation toast;		/* NULL: none */
	List *index_oids;	/* of it, then those of the table that move with it */
	int ntoast_indexes; /* of it */
	Relation *indexes;	/* as many as index_oids */
	Relation file;		/* the table's new one */
	bool has_metapage;	/* has the new file block 0? */
	FileCopy toast_copy;
	FileCopy *index_copies;
	List *files; /* all new ones, as Relations */
	HTAB *groups;
	TableOptions *options;	/* NULL: bytes stay as they are */
	GroupCatalog *catalog;	/* of this round */
	bool locked;			/* the last round */
	uint64 written;			/* bytes, without WAL */
	uint64 pages;			/* copied one by one */
	int64 bytes_per_second; /* 0: no limit */
	TimestampTz started;
} TableMove;

/* Of table_move.c: ERROR if somebody waits for the table, unless it is locked. */
extern void table_move_give_way(TableMove *move);
/* After bytes were written: gives way, and keeps to the rate.  WAL has the bytes once more. */
extern void table_move_note_written(TableMove *move, uint64 bytes);

/* Of table_move_copy.c. */
extern void table_move_begin_copy(TableMove *move);
/* One round; returns the bytes that it copied. */
extern uint64 table_move_copy_new(TableMove *move);

#endif
