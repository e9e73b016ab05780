/*
 * index_validity.c
 *		Which indexes of shells count as valid.
 *
 * What CREATE INDEX CONCURRENTLY did not finish is an invalid index (ddl_index.c), and the planner trusts
 * valid ones: a unique index removes joins.  PostgreSQL makes every index valid that it has
 * built from a whole table: REINDEX, TRUNCATE, VACUUM FULL, ALTER TABLE with a rewrite.  Of a shell that
 * says nothing, for its rows are on the workers, where partitions may lack the index, or hold duplicates.
 *
 * Invariant: an invalid index of a shell becomes valid only by index_validity_set(), after the workers have
 * completed it.  The access method tells about each build of an invalid index; what
 * PostgreSQL then writes into the catalog is taken back at the command's end, and before any commit (VACUUM
 * FULL and REINDEX SCHEMA commit by themselves): no other session ever sees it.
 */
#include "postgres.h"

#include "table/index_validity.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_index.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* Indexes noted in this transaction; in its memory. */
static List *rebuilt = NIL;

/* False if there is no such index any more. */
static bool
change_validity(Oid index, bool valid)
{
	Relation catalog;
	HeapTuple tuple;
	Form_pg_index form;

	CommandCounterIncrement();
	tuple = SearchSysCacheCopy1(INDEXRELID, ObjectIdGetDatum(index));
	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_index) GETSTRUCT(tuple);
	if (form->indisvalid != valid)
	{
		catalog = table_open(IndexRelationId, RowExclusiveLock);
		form->indisvalid = valid;
		if (valid)
			form->indisready = form->indislive =
				true; /* it is of a shell: there is nothing in it */
		CatalogTupleUpdate(catalog, &tuple->t_self, tuple);
		CacheInvalidateRelcacheByRelid(form->indrelid);
		table_close(catalog, RowExclusiveLock);
		CommandCounterIncrement();
	}
	heap_freetuple(tuple);
	return true;
}

void
index_validity_set(Oid index, bool valid)
{
	rebuilt = list_delete_oid(rebuilt, index);
	if (!change_validity(index, valid))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("the index was dropped while it was created")));
}

void
index_validity_note_rebuilt(Oid index)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	rebuilt = list_append_unique_oid(rebuilt, index);
	MemoryContextSwitchTo(old);
}

void
index_validity_restore(void)
{
	ListCell *cell;

	foreach(cell, rebuilt)
		(void) change_validity(lfirst_oid(cell), false);
	list_free(rebuilt);
	rebuilt = NIL;
}

void
index_validity_transaction_event(XactEvent event)
{
	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
		index_validity_restore();
	else if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE)
		rebuilt = NIL;
}
