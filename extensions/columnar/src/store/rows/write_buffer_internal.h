/*
 * write_buffer_internal.h
 *		A write buffer, for the files that fill and store it.
 */
#ifndef COLUMNAR_WRITE_BUFFER_INTERNAL_H
#define COLUMNAR_WRITE_BUFFER_INTERNAL_H

#include "store/rows/write_buffer.h"

#include "lib/ilist.h"

#include "store/options/options.h"
#include "store/catalog/row_group_cache.h"

typedef struct WriteTarget WriteTarget;

typedef struct WriteBuffer
{
	dlist_node all;			  /* in all_buffers, oldest first */
	struct WriteBuffer *next; /* of the same table */
	WriteTarget *target;
	Oid relid;
	SubTransactionId subid;
	CompatFileLocator file;
	MemoryContext context;
	bool checked; /* types are the relation's, as far as invalidations tell */
	RelationTypes *types;
	int natts;
	ColumnValues *columns; /* type NULL: dropped */
	TableOptions *options;

	GroupRecord record; /* as it lies in the catalog */
	ItemPointerData tid;
	CommandId first_command; /* cmin of the record */

	uint32 nrows;		/* rows appended, including those taken back */
	Bitmapset *removed; /* positions taken back */
	uint32 nremoved;
	uint64 bytes;  /* raw bytes of the rows */
	uint64 memory; /* bytes that the context takes */

	/* finished commands, and the one that appends now */
	CommandRun runs[GROUP_COMMAND_RUNS];
	int nruns;
	CommandId command;
	uint32 command_first; /* position of its first row */
	uint32 command_rows;  /* its rows that were not taken back */
} WriteBuffer;

/* Begins another command; false if the record cannot describe it and the buffer must be stored. */
extern bool write_buffer_begin_command(WriteBuffer *buffer, CommandId command);

/* Which command appended the row? */
extern CommandId write_buffer_find_command(const WriteBuffer *buffer, uint32 position);

/* Encodes the rows into `bytes` and completes the record; `is_final`: see store_buffer(). */
extern void
write_buffer_encode(WriteBuffer *buffer, GroupRecord *record, bool is_final, ByteBuffer *bytes);

#endif
