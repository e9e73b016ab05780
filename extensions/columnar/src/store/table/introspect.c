/*
 * introspect.c
 *		SQL functions that show and compact columnar tables (verify.c checks them).
 *
 * Reading needs SELECT on the table (bounds are values of it), compacting its
 * ownership.  What is shown is what the statement's snapshot sees.
 */
#include "compat.h"
#include "relation_owner.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

#include "store/table/compaction.h"
#include "store/table/introspect.h"
#include "store/codec/numeric_codec.h"
#include "store/catalog/row_group.h"
#include "store/rows/row_scan.h"
#include "store/pages/space.h"
#include "store/table/table_am.h"
#include "store/rows/write_buffer.h"

PG_FUNCTION_INFO_V1(columnar_row_groups);
PG_FUNCTION_INFO_V1(columnar_chunks);
PG_FUNCTION_INFO_V1(columnar_stats);
PG_FUNCTION_INFO_V1(columnar_compact);

static Relation
open_table(Oid relation_id, LOCKMODE lockmode)
{
	Relation relation = table_open(relation_id, lockmode);

	if (!columnar_is_table(relation))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("\"%s\" is not a columnar table", RelationGetRelationName(relation)),
						relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE
							? errhint("Ask its partitions.")
							: errhint("ALTER TABLE ... SET ACCESS METHOD columnar makes it one.")));
	return relation;
}

Relation
columnar_open_to_read(Oid relation_id)
{
	Relation relation;
	AclResult allowed = pg_class_aclcheck(relation_id, GetUserId(), ACL_SELECT);

	if (allowed != ACLCHECK_OK)
		aclcheck_error(allowed, OBJECT_TABLE, get_rel_name(relation_id));
	relation = open_table(relation_id, AccessShareLock);
	write_buffer_flush(relation);
	return relation;
}

Relation
columnar_open_own_table(Oid relation_id, LOCKMODE lockmode)
{
	lock_own_relation(relation_id, lockmode);
	return open_table(relation_id, NoLock);
}

/* Bytes of all chunks before general compression. */
static uint64
sum_raw_bytes(RowGroupReader *reader, int natts)
{
	uint64 bytes = 0;

	for (int i = 1; i <= natts; i++)
	{
		const ChunkSummary *summary = row_group_reader_summary(reader, i);

		if (summary != NULL)
			bytes += summary->raw_length;
	}
	return bytes;
}

/* ---- row groups and chunks ---------------------------------------------------------------------- */

Datum
columnar_row_groups(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation relation = columnar_open_to_read(PG_GETARG_OID(0));
	GroupCatalog *catalog = group_catalog_open(relation, AccessShareLock);
	Snapshot snapshot = GetActiveSnapshot();
	uint32 ngroups;
	GroupEntry *groups = group_catalog_list(catalog, snapshot, &ngroups);
	DeletedRows *deleted = deleted_rows_load(catalog, snapshot);

	InitMaterializedSRF(fcinfo, 0);
	for (uint32 i = 0; i < ngroups; i++)
	{
		const GroupRecord *record = &groups[i].record;
		RowGroupReader *reader = row_group_reader_open(catalog, record, NULL);
		Datum values[10];
		bool nulls[10] = {false};

		CHECK_FOR_INTERRUPTS();
		values[0] = Int64GetDatum((int64) record->group_id);
		values[1] = CStringGetTextDatum(record->state == GROUP_INLINE ? "inline" : "stored");
		values[2] = Int64GetDatum((int64) record->first_row);
		values[3] = Int64GetDatum((int64) record->row_span);
		values[4] = Int64GetDatum((int64) groups[i].visible_rows);
		values[5] = Int64GetDatum((int64) row_scan_count_deleted(catalog, &groups[i], deleted));
		values[6] = Int64GetDatum((int64) record->length);
		values[7] = Int64GetDatum((int64) sum_raw_bytes(reader, RelationGetDescr(relation)->natts));
		values[8] = Int64GetDatum(record->state == GROUP_INLINE ? 0 : (int64) record->nblocks);
		values[9] = Int64GetDatum((int64) record->first_block);
		nulls[9] = record->state == GROUP_INLINE;
		row_group_reader_close(reader);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	group_catalog_close(catalog);
	/* many tables may be looked at in one statement: their locks would be a deadlock with whoever drops them */
	table_close(relation, AccessShareLock);
	return (Datum) 0;
}

/* A bound as text; NULL if there is none.  A cut text ends before a character, not within. */
static char *
bound_text(const ColumnType *type, Oid output, const ZoneBound *bound)
{
	Datum value;

	switch (type->zone)
	{
		case ZONE_INT:
			value = column_type_from_int(type, bound->number);
			break;
		case ZONE_FLOAT:
		{
			double number;

			memcpy(&number, &bound->number, sizeof(number));
			value = type->length == 4 ? Float4GetDatum((float4) number) : Float8GetDatum(number);
			break;
		}
		case ZONE_BYTES:
			if (type->length > 0)
				return NULL; /* perhaps cut: no value of a fixed length */
			value = column_type_from_bytes(
				type, bound->bytes,
				type->typid == BYTEAOID
					? bound->length
					: (uint32) pg_mbcliplen(bound->bytes, bound->length, bound->length));
			break;
		case ZONE_COMPARE:
			value = type->form == FORM_INT
						? column_type_from_int(type, bound->number)
						: column_type_from_bytes(type, bound->bytes, bound->length);
			break;
		default:
			return NULL;
	}
	return OidOutputFunctionCall(output, value);
}

static Datum
encoding_names(uint32 encodings)
{
	Datum names[CHUNK_NENCODINGS];
	int count = 0;

	for (int i = 0; i < CHUNK_NENCODINGS; i++)
		if (encodings & (1u << i))
			names[count++] = CStringGetTextDatum(chunk_encoding_name((ChunkEncoding) i));
	return PointerGetDatum(construct_array(names, count, TEXTOID, -1, false, TYPALIGN_INT));
}

Datum
columnar_chunks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation relation = columnar_open_to_read(PG_GETARG_OID(0));
	TupleDesc descriptor = RelationGetDescr(relation);
	GroupCatalog *catalog = group_catalog_open(relation, AccessShareLock);
	uint32 ngroups;
	GroupEntry *groups = group_catalog_list(catalog, GetActiveSnapshot(), &ngroups);

	InitMaterializedSRF(fcinfo, 0);
	for (uint32 i = 0; i < ngroups; i++)
	{
		RowGroupReader *reader = row_group_reader_open(catalog, &groups[i].record, NULL);

		CHECK_FOR_INTERRUPTS();
		for (int attribute = 1; attribute <= descriptor->natts; attribute++)
		{
			const ChunkSummary *summary = row_group_reader_summary(reader, attribute);
			Form_pg_attribute form = TupleDescAttr(descriptor, attribute - 1);
			const ColumnType *type;
			Datum values[12];
			bool nulls[12] = {false};
			char *text;
			Oid output;
			bool is_varlena;

			if (summary == NULL || form->attisdropped)
				continue;
			type = row_group_reader_type(reader, attribute);
			getTypeOutputInfo(type->typid, &output, &is_varlena);
			values[0] = Int64GetDatum((int64) groups[i].record.group_id);
			values[1] = NameGetDatum(&form->attname);
			values[2] = encoding_names(summary->encodings);
			values[3] = CStringGetTextDatum(codec_name((Codec) summary->codec));
			values[4] = Int64GetDatum((int64) summary->length);
			values[5] = Int64GetDatum((int64) summary->raw_length);
			values[6] = Int64GetDatum((int64) summary->zone.nnulls);
			values[7] = Int64GetDatum((int64) summary->distinct);
			values[8] = BoolGetDatum(summary->has_bloom);
			nulls[9] = nulls[10] = true;
			if (summary->zone.has_bounds)
			{
				if ((text = bound_text(type, output, &summary->zone.min)) != NULL)
				{
					values[9] = CStringGetTextDatum(text);
					nulls[9] = false;
				}
				if ((text = bound_text(type, output, &summary->zone.max)) != NULL)
				{
					values[10] = CStringGetTextDatum(text);
					nulls[10] = false;
				}
			}
			nulls[11] = !summary->has_sum;
			if (summary->has_sum)
				values[11] = numeric_from_scaled(summary->sum, Max(summary->sum_scale, 0));
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
		}
		row_group_reader_close(reader);
	}
	group_catalog_close(catalog);
	table_close(relation, NoLock);
	return (Datum) 0;
}

/* ---- statistics --------------------------------------------------------------------------------- */

Datum
columnar_stats(PG_FUNCTION_ARGS)
{
	Relation relation = columnar_open_to_read(PG_GETARG_OID(0));
	GroupCatalog *catalog = group_catalog_open(relation, AccessShareLock);
	Snapshot snapshot = GetActiveSnapshot();
	uint32 ngroups;
	GroupEntry *groups = group_catalog_list(catalog, snapshot, &ngroups);
	DeletedRows *deleted = deleted_rows_load(catalog, snapshot);
	TupleDesc descriptor;
	int64 inline_groups = 0;
	int64 rows = 0;
	int64 deleted_rows = 0;
	int64 bytes = 0;
	int64 raw_bytes = 0;
	int64 pages = 0;
	int64 file_pages = RelationGetNumberOfBlocks(relation);
	Datum values[9];
	bool nulls[9] = {false};

	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	for (uint32 i = 0; i < ngroups; i++)
	{
		const GroupRecord *record = &groups[i].record;
		RowGroupReader *reader = row_group_reader_open(catalog, record, NULL);

		CHECK_FOR_INTERRUPTS();
		inline_groups += record->state == GROUP_INLINE;
		rows += groups[i].visible_rows;
		deleted_rows += (int64) row_scan_count_deleted(catalog, &groups[i], deleted);
		bytes += (int64) record->length;
		raw_bytes += (int64) sum_raw_bytes(reader, RelationGetDescr(relation)->natts);
		pages += record->state == GROUP_INLINE ? 0 : record->nblocks;
		row_group_reader_close(reader);
	}
	values[0] = Int64GetDatum(ngroups);
	values[1] = Int64GetDatum(inline_groups);
	values[2] = Int64GetDatum(rows - deleted_rows);
	values[3] = Int64GetDatum(deleted_rows);
	values[4] = Int64GetDatum(bytes);
	values[5] = Int64GetDatum(raw_bytes);
	values[6] = Int64GetDatum(pages);
	values[7] = Int64GetDatum(file_pages);
	values[8] = Int64GetDatum(Max(file_pages - 1 - pages, 0));
	group_catalog_close(catalog);
	table_close(relation, NoLock);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls)));
}

/* ---- compaction --------------------------------------------------------------------------------- */

Datum
columnar_compact(PG_FUNCTION_ARGS)
{
	bool all = PG_GETARG_BOOL(1);
	Relation relation = columnar_open_own_table(PG_GETARG_OID(0), ShareUpdateExclusiveLock);
	CompactionResult compaction;
	TupleDesc descriptor;
	Datum values[3];
	bool nulls[3] = {false};

	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	PreventCommandIfReadOnly("columnar_compact()");
	compaction_run(relation, all ? COMPACT_ALL : COMPACT_DUE, 0, &compaction);
	table_close(relation, NoLock);
	values[0] = Int64GetDatum(compaction.groups_read);
	values[1] = Int64GetDatum(compaction.groups_written);
	values[2] = Int64GetDatum((int64) compaction.rows_removed);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls)));
}
