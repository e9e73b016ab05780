/*
 * row_format.c
 *		Which types are binary-safe between nodes, and values as SQL literals.
 *
 * A type's binary form may cross between nodes if it holds no OID that another
 * node could have given to something else.  Enums send labels, ranges and domains their
 * element's bytes; arrays and composites write type OIDs, which are the same everywhere only
 * for built-in types; values of object identifier types are nothing but OIDs.
 *
 * Text that leaves this node must be read right whatever the session's settings are
 * there or will be when a kept statement is sent: output functions obey DateStyle,
 * extra_float_digits and so on, while input functions read any unambiguous form.
 * So literals are written in ISO form with all digits, and names of objects qualified,
 * whatever the session shows its user.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_ts_config.h"
#include "catalog/pg_ts_dict.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/float.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rangetypes.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"
#include "utils/uuid.h"

#include "values/row_format.h"
#include "text_style.h"

/* ----------------------------------------------------------------
 * Types that name objects by their OIDs
 * ----------------------------------------------------------------
 */

Oid
row_format_object_class(Oid type)
{
	switch (type)
	{
		case REGCLASSOID:
			return RelationRelationId;
		case REGCOLLATIONOID:
			return CollationRelationId;
		case REGCONFIGOID:
			return TSConfigRelationId;
		case REGDICTIONARYOID:
			return TSDictionaryRelationId;
		case REGNAMESPACEOID:
			return NamespaceRelationId;
		case REGOPEROID:
		case REGOPERATOROID:
			return OperatorRelationId;
		case REGPROCOID:
		case REGPROCEDUREOID:
			return ProcedureRelationId;
		case REGROLEOID:
			return AuthIdRelationId;
		case REGTYPEOID:
			return TypeRelationId;
		default:
			return InvalidOid;
	}
}

/* aclitem is made of two OIDs of roles. */
static bool
is_object_identifier(Oid type)
{
	return OidIsValid(row_format_object_class(type)) || type == ACLITEMOID;
}

static Oid
find_column_type(Oid type, Oid (*find)(Oid))
{
	TupleDesc desc = lookup_rowtype_tupdesc_copy(type, -1);
	Oid found = InvalidOid;

	for (int i = 0; i < desc->natts && !OidIsValid(found); i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (!column->attisdropped)
			found = find(column->atttypid);
	}
	FreeTupleDesc(desc);
	return found;
}

Oid
row_format_find_part(Oid type, Oid (*find)(Oid))
{
	Oid element = get_element_type(type);

	if (OidIsValid(element))
		return find(element);
	switch (get_typtype(type))
	{
		case TYPTYPE_DOMAIN:
			return find(getBaseType(type));
		case TYPTYPE_RANGE:
			return find(get_range_subtype(type));
		case TYPTYPE_MULTIRANGE:
			return find(get_multirange_range(type));
		case TYPTYPE_COMPOSITE:
			return find_column_type(type, find);
		default:
			return InvalidOid;
	}
}

Oid
row_format_find_object_identifier(Oid type)
{
	return is_object_identifier(type)
			   ? type
			   : row_format_find_part(type, row_format_find_object_identifier);
}

/* ----------------------------------------------------------------
 * Which types are binary
 * ----------------------------------------------------------------
 */

/* Built-in types have the same OID on every node of one major version. */
static inline bool
has_fixed_oid(Oid type)
{
	return type < FirstUnpinnedObjectId;
}

/* record_send() writes the columns' type OIDs. */
static bool
is_composite_binary(Oid type)
{
	TupleDesc desc = lookup_rowtype_tupdesc(type, -1);
	bool binary = true;

	for (int i = 0; i < desc->natts && binary; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		binary = attribute->attisdropped ||
				 (has_fixed_oid(attribute->atttypid) && row_format_is_binary(attribute->atttypid));
	}
	ReleaseTupleDesc(desc);
	return binary;
}

/* Types that have send and receive functions but whose bytes are no use elsewhere. */
static bool
is_bound_to_node(Oid type)
{
	if (is_object_identifier(type))
		return true;
	switch (type)
	{
		case XMLOID:	 /* xml_send() adds an encoding declaration */
		case TSQUERYOID: /* tsqueryrecv() of older minor releases rejects an empty query */
			return true;
		default:
			return false;
	}
}

static bool
is_catalog_type_binary(Oid type, Form_pg_type form)
{
	if (!OidIsValid(form->typsend) || !OidIsValid(form->typreceive) || is_bound_to_node(type))
		return false;
	if (IsTrueArrayType(form)) /* array_send() writes the element's type OID */
		return has_fixed_oid(form->typelem) && row_format_is_binary(form->typelem);

	switch (form->typtype)
	{
		case TYPTYPE_BASE:
		case TYPTYPE_ENUM: /* labels */
			return true;
		case TYPTYPE_DOMAIN:
			return row_format_is_binary(form->typbasetype);
		case TYPTYPE_RANGE:
			return row_format_is_binary(get_range_subtype(type));
		case TYPTYPE_MULTIRANGE:
			return row_format_is_binary(get_multirange_range(type));
		case TYPTYPE_COMPOSITE:
			return is_composite_binary(type);
		default: /* pseudo-types */
			return false;
	}
}

/*
 * Not cached on purpose: the common types are decided by the switch, and the others
 * cost one look-up in the system cache, which no ALTER TYPE can make stale.
 */
bool
row_format_is_binary(Oid type)
{
	HeapTuple tuple;
	bool binary;

	switch (type)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case OIDOID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case BYTEAOID:
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case INTERVALOID:
		case UUIDOID:
		case JSONBOID:
			return true;
		default:
			break;
	}

	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for type %u", type);
	binary = is_catalog_type_binary(type, (Form_pg_type) GETSTRUCT(tuple));
	ReleaseSysCache(tuple);
	return binary;
}

/* ----------------------------------------------------------------
 * Settings while functions of types run
 * ----------------------------------------------------------------
 */

static void
set_local_option(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
}

int
row_format_enter_sql_mode(void)
{
	int nest_level = NewGUCNestLevel();

	if (DateStyle != USE_ISO_DATES)
		set_local_option("datestyle", "ISO");
	if (IntervalStyle != INTSTYLE_POSTGRES)
		set_local_option("intervalstyle", "postgres");
	if (extra_float_digits < 3)
		set_local_option("extra_float_digits", "3");
	if (bytea_output != BYTEA_OUTPUT_HEX)
		set_local_option("bytea_output", "hex");
	set_local_option("search_path", "pg_catalog");
	return nest_level;
}

void
row_format_leave_sql_mode(int nest_level)
{
	AtEOXact_GUC(true, nest_level);
}

/* ----------------------------------------------------------------
 * Literals
 * ----------------------------------------------------------------
 */

/* Quote so that standard_conforming_strings does not matter. */
static void
append_quoted(StringInfo buffer, const char *text)
{
	if (strchr(text, '\\') != NULL)
		appendStringInfoChar(buffer, 'E');
	appendStringInfoChar(buffer, '\'');
	for (; *text != '\0'; text++)
	{
		if (*text == '\'' || *text == '\\')
			appendStringInfoCharMacro(buffer, *text);
		appendStringInfoCharMacro(buffer, *text);
	}
	appendStringInfoChar(buffer, '\'');
}

/* The text form of a value, as every session reads it. */
static char *
make_neutral_text(Oid type, Datum value)
{
	Oid function;
	bool is_varlena;
	TextStyle style;
	char *text;

	getTypeOutputInfo(type, &function, &is_varlena);
	switch (type)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case UUIDOID:
			return OidOutputFunctionCall(function, value);
		default:
			break;
	}

	if (!row_format_is_binary(type)) /* names of objects may be in it */
	{
		int nest_level = row_format_enter_sql_mode();

		text = OidOutputFunctionCall(function, value);
		row_format_leave_sql_mode(nest_level);
		return text;
	}

	style = text_style_enter();
	PG_TRY();
	{
		text = OidOutputFunctionCall(function, value);
	}
	PG_FINALLY();
	{
		text_style_leave(&style);
	}
	PG_END_TRY();
	return text;
}

void
row_format_append_literal(StringInfo buffer, Oid type, Datum value, bool isnull)
{
	if (isnull)
		appendStringInfoString(buffer, "NULL");
	else
	{
		char *text = make_neutral_text(type, value);

		append_quoted(buffer, text);
		pfree(text);
	}

	/* "given, but -1" keeps bpchar and bit from becoming char(1) and bit(1) */
	appendStringInfo(
		buffer, "::%s",
		format_type_extended(type, -1, FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
}
