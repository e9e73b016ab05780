/*
 * reference_row.c
 *		A changed row of a reference table as SQL for the workers' copies.
 *
 * A copy's row is found by the primary key, unless that can be deferred: then two rows may have it.  Without one it is found by all of its values, byte by byte: types
 * need no equality for that, and what they call equal may still be two rows.  Of rows that are the same in
 * everything any one is changed, which the copy cannot tell from another; LIMIT above the row's lock takes the next one when
 * another transaction has changed it meanwhile.
 */
#include "postgres.h"

#include "stream/reference_row.h"

#include "access/sysattr.h"
#include "nodes/bitmapset.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"
#include "cluster/relation_name.h"
#include "values/row_format.h"

static Form_pg_attribute
get_column(TupleTableSlot *row, AttrNumber attribute)
{
	return TupleDescAttr(row->tts_tupleDescriptor, attribute - 1);
}

/* Is it a column whose values the workers are given?  They compute those of generated ones. */
static bool
is_sent(Form_pg_attribute column)
{
	return !column->attisdropped && column->attgenerated == '\0';
}

static const char *
quote_column(TupleTableSlot *row, AttrNumber attribute)
{
	return quote_identifier(NameStr(get_column(row, attribute)->attname));
}

static void
append_value(StringInfo sql, TupleTableSlot *row, AttrNumber attribute, Oid type)
{
	bool null;
	Datum value = slot_getattr(row, attribute, &null);

	row_format_append_literal(sql, type, value, null);
}

/* column = value, which the row gets */
static void
append_assignment(StringInfo sql, TupleTableSlot *row, AttrNumber attribute)
{
	appendStringInfo(sql, "%s = ", quote_column(row, attribute));
	append_value(sql, row, attribute, get_column(row, attribute)->atttypid);
}

/* The type by which a row is found: its domain may not take the value any more (NOT VALID). */
static Oid
get_compared_type(TupleTableSlot *row, AttrNumber attribute)
{
	return getBaseType(get_column(row, attribute)->atttypid);
}

/* column = value, which the row has */
static void
append_comparison(StringInfo sql, TupleTableSlot *row, AttrNumber attribute)
{
	appendStringInfo(sql, "%s = ", quote_column(row, attribute));
	append_value(sql, row, attribute, get_compared_type(row, attribute));
}

/* ROW(column, ...)::record OPERATOR(pg_catalog.*=) ROW(value, ...)::record: the same bytes, and NULL where that is NULL */
static void
append_same_values(StringInfo sql, TupleTableSlot *row)
{
	int count = row->tts_tupleDescriptor->natts;
	const char *separator = "";

	appendStringInfoString(sql, "ROW(");
	for (AttrNumber i = 1; i <= count; i++)
	{
		if (!is_sent(get_column(row, i)))
			continue;
		appendStringInfo(
			sql, "%s%s::%s", separator, quote_column(row, i),
			format_type_extended(get_compared_type(row, i), -1,
								 FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
		separator = ", ";
	}
	appendStringInfoString(sql, ")::pg_catalog.record OPERATOR(pg_catalog.*=) ROW(");
	separator = "";
	for (AttrNumber i = 1; i <= count; i++)
	{
		if (!is_sent(get_column(row, i)))
			continue;
		appendStringInfoString(sql, separator);
		append_value(sql, row, i, get_compared_type(row, i));
		separator = ", ";
	}
	appendStringInfoString(sql, ")::pg_catalog.record");
}

/* The condition that finds one row; lock: what the command takes of it at least. */
static void
append_condition(StringInfo sql, Relation relation, TupleTableSlot *row, const char *lock)
{
	Bitmapset *key = NULL;
	const char *separator = "";
	int member = -1;

	/* the attributes are also those of a key that can be deferred, since 17 */
	if (OidIsValid(compat_primary_key_index(relation)))
		key = RelationGetIndexAttrBitmap(relation, INDEX_ATTR_BITMAP_PRIMARY_KEY);
	if (bms_is_empty(key))
	{
		appendStringInfo(sql, "ctid = (SELECT ctid FROM ONLY %s WHERE ",
						 relation_name_qualified(RelationGetRelid(relation)));
		append_same_values(sql, row);
		appendStringInfo(sql, " LIMIT 1 FOR %s)", lock);
	}
	while ((member = bms_next_member(key, member)) >= 0)
	{
		appendStringInfoString(sql, separator);
		append_comparison(sql, row, member + FirstLowInvalidHeapAttributeNumber);
		separator = " AND ";
	}
	bms_free(key);
}

static bool
columns_differ(TupleTableSlot *old_row, TupleTableSlot *new_row, AttrNumber attribute)
{
	Form_pg_attribute column = get_column(old_row, attribute);
	bool old_null;
	bool new_null;
	Datum old_value = slot_getattr(old_row, attribute, &old_null);
	Datum new_value = slot_getattr(new_row, attribute, &new_null);

	if (old_null || new_null)
		return old_null != new_null;
	return !datum_image_eq(old_value, new_value, column->attbyval, column->attlen);
}

bool
reference_row_append_update(StringInfo sql, Relation relation, TupleTableSlot *old_row,
							TupleTableSlot *new_row)
{
	const char *separator = "";
	int start = sql->len;

	appendStringInfo(sql, "UPDATE ONLY %s SET ",
					 relation_name_qualified(RelationGetRelid(relation)));
	for (AttrNumber i = 1; i <= old_row->tts_tupleDescriptor->natts; i++)
	{
		if (!is_sent(get_column(old_row, i)) || !columns_differ(old_row, new_row, i))
			continue;
		appendStringInfoString(sql, separator);
		append_assignment(sql, new_row, i);
		separator = ", ";
	}
	if (separator[0] == '\0')
	{
		sql->len = start;
		sql->data[start] = '\0';
		return false;
	}
	appendStringInfoString(sql, " WHERE ");
	append_condition(sql, relation, old_row, "NO KEY UPDATE");
	appendStringInfoString(sql, ";\n");
	return true;
}

void
reference_row_append_delete(StringInfo sql, Relation relation, TupleTableSlot *row)
{
	appendStringInfo(sql, "DELETE FROM ONLY %s WHERE ",
					 relation_name_qualified(RelationGetRelid(relation)));
	append_condition(sql, relation, row, "UPDATE");
	appendStringInfoString(sql, ";\n");
}

void
reference_row_append_move(StringInfo sql, Oid root, Relation leaf, TupleTableSlot *old_row,
						  TupleTableSlot *new_row)
{
	const char *separator = " SET ";

	appendStringInfo(sql, "UPDATE %s", relation_name_qualified(root));
	for (AttrNumber i = 1; i <= new_row->tts_tupleDescriptor->natts; i++)
	{
		if (!is_sent(get_column(new_row, i)))
			continue;
		appendStringInfoString(sql, separator);
		append_assignment(sql, new_row, i);
		separator = ", ";
	}
	appendStringInfoString(sql, " WHERE ");
	append_condition(sql, leaf, old_row, "UPDATE");
	appendStringInfo(sql, " AND tableoid = %s::pg_catalog.regclass;\n",
					 quote_literal_cstr(relation_name_qualified(RelationGetRelid(leaf))));
}
