/*
 * column_type.c
 *		Which form, zone order and functions a column's type has.
 *
 * The form follows from length and passing by value alone, but for the three
 * types with codecs of their own (float4, float8, numeric).  The zone order
 * follows from the comparison function of the default btree operator class, not
 * from the type, so that types which borrow another's operators (varchar those
 * of text, regclass those of oid) have its order.
 *
 * A type can change without a rewrite of the table: varchar to text, int4 to
 * oid, text to character, any collation to another.  The bytes of a value are the
 * same then, but signs, orders and hash functions are not.  So zone maps and
 * Bloom filters name the order and the hash function that made them
 * (zone_map.c, chunk_write.c), and a reader ignores those of another.
 *
 * Only comparison and hash functions in C are called: a chunk is written when a
 * transaction commits, where no SQL can run.  And no order is used that depends on
 * a collation of the operating system or of ICU: it may change with an upgrade, and
 * what then is a REINDEX for indexes would be a rewrite for tables.  (Text is exempt:
 * its bounds are those of its bytes, under any collation.)
 */
#include "compat.h"

#include "access/htup_details.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_locale.h"
#include "utils/typcache.h"

#include "store/value/column_type.h"

StaticAssertDecl(SIZEOF_DATUM == 8, "a datum holds every value of FORM_INT");

/* Is it a function of PostgreSQL or of a library, which needs no executor? */
static bool
is_written_in_c(Oid function)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool result;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	result = (form->prolang == INTERNALlanguageId || form->prolang == ClanguageId) &&
			 !form->prosecdef && heap_attisnull(tuple, Anum_pg_proc_proconfig, NULL);
	ReleaseSysCache(tuple);
	return result;
}

static ColumnForm
choose_form(Oid typid, int16 length, bool byval)
{
	if (typid == FLOAT4OID || typid == FLOAT8OID)
		return FORM_FLOAT;
	if (typid == NUMERICOID)
		return FORM_NUMERIC;
	if (byval)
		return FORM_INT;
	return length > 0 ? FORM_FIXED : FORM_BYTES;
}

/* The order that a btree comparison function makes. */
static ZoneOrder
choose_zone(Oid compare)
{
	switch (compare)
	{
		case F_BTINT2CMP:
		case F_BTINT4CMP:
		case F_BTINT8CMP:
		case F_DATE_CMP:
		case F_TIME_CMP:
		case F_TIMESTAMP_CMP:
		case F_TIMESTAMPTZ_CMP:
		case F_CASH_CMP:
		case F_BTBOOLCMP:
		case F_BTOIDCMP:
		case F_BTCHARCMP:
			return ZONE_INT;
		case F_BTFLOAT4CMP:
		case F_BTFLOAT8CMP:
			return ZONE_FLOAT;
		case F_BTTEXTCMP:
		case F_BPCHARCMP:
		case F_BTNAMECMP:
		case F_BYTEACMP:
		case F_UUID_CMP:
			return ZONE_BYTES;
		case InvalidOid:
			return ZONE_NONE;
		default:
			return ZONE_COMPARE;
	}
}

/* Do negative numbers of this order stand for large ones? */
static bool
is_unsigned_type(Oid typid, Oid compare)
{
	switch (compare)
	{
		case F_BTOIDCMP:
		case F_BTCHARCMP:
		case F_BTBOOLCMP:
			return true;
		default:
			return typid == XIDOID || typid == CIDOID;
	}
}

/*
 * May values of the type be compared and hashed at any time, now and in years?  Looks into
 * arrays and ranges, whose functions call those of their elements; a composite type
 * may have fields of any kind, and is not worth the look.
 */
static bool
has_lasting_functions(Oid typid)
{
	TypeCacheEntry *entry = lookup_type_cache(getBaseType(typid),
											  TYPECACHE_CMP_PROC | TYPECACHE_HASH_EXTENDED_PROC |
												  TYPECACHE_RANGE_INFO | TYPECACHE_MULTIRANGE_INFO);
	Oid element = get_element_type(entry->type_id);

	check_stack_depth();
	if (entry->typtype == TYPTYPE_COMPOSITE || entry->type_id == RECORDOID)
		return false;
	if (OidIsValid(entry->cmp_proc) && !is_written_in_c(entry->cmp_proc))
		return false;
	if (OidIsValid(entry->hash_extended_proc) && !is_written_in_c(entry->hash_extended_proc))
		return false;
	if (OidIsValid(element))
		return has_lasting_functions(element);
	if (entry->typtype == TYPTYPE_MULTIRANGE)
		return has_lasting_functions(entry->rngtype->type_id);
	if (entry->typtype == TYPTYPE_RANGE)
		return is_written_in_c(entry->rng_cmp_proc_finfo.fn_oid) &&
			   (!OidIsValid(entry->rng_collation) || compat_collation_is_c(entry->rng_collation)) &&
			   has_lasting_functions(entry->rngelemtype->type_id);
	return true;
}

/* Is it an order of a comparison function that depends on a collation's version? */
static bool
is_order_of_collation(const ColumnType *type)
{
	if (type->zone != ZONE_COMPARE)
		return false;
	/* jsonb compares its strings in the database's collation */
	return type->typid == JSONBOID ||
		   (OidIsValid(type->collation) && !compat_collation_is_c(type->collation));
}

/* What of the type follows from its operator classes. */
static void
init_functions(ColumnType *type)
{
	TypeCacheEntry *entry = lookup_type_cache(type->typid, TYPECACHE_CMP_PROC_FINFO |
															   TYPECACHE_HASH_EXTENDED_PROC_FINFO);
	Oid compare = entry->cmp_proc;

	type->is_unsigned = is_unsigned_type(type->typid, compare);

	/* under such a collation different bytes are equal, and which ones changes with its version */
	if (OidIsValid(type->collation) && !get_collation_isdeterministic(type->collation))
		return;
	if (!has_lasting_functions(type->typid))
		return;

	if (OidIsValid(entry->hash_extended_proc))
		fmgr_info_copy(&type->hash, &entry->hash_extended_proc_finfo, CurrentMemoryContext);
	type->zone = choose_zone(compare);
	type->trim_blanks = compare == F_BPCHARCMP;
	if (is_order_of_collation(type))
		type->zone = ZONE_NONE;
	if (type->zone == ZONE_COMPARE)
		fmgr_info_copy(&type->compare, &entry->cmp_proc_finfo, CurrentMemoryContext);
	if (type->zone == ZONE_BYTES)
		type->bytes_are_ordered = !OidIsValid(type->collation) ||
								  compat_collation_is_c(type->collation);
}

void
column_type_init(ColumnType *type, Form_pg_attribute attribute)
{
	memset(type, 0, sizeof(*type));
	type->typmod = attribute->atttypmod;
	type->collation = attribute->attcollation;
	type->length = attribute->attlen;
	type->byval = attribute->attbyval;
	type->align = attribute->attalign;
	if (OidIsValid(attribute->atttypid))
		type->typid = getBaseTypeAndTypmod(attribute->atttypid, &type->typmod);
	type->form = choose_form(type->typid, type->length, type->byval);
	type->zone = ZONE_NONE;

	/* a dropped column has no type any more: its old values are never asked for */
	if (OidIsValid(type->typid))
		init_functions(type);
}

int64
column_type_to_int(const ColumnType *type, Datum value)
{
	switch (type->length)
	{
		case 1:
			return type->is_unsigned ? (int64) (uint8) value : (int64) (int8) value;
		case 2:
			return type->is_unsigned ? (int64) (uint16) value : (int64) (int16) value;
		case 4:
			return type->is_unsigned || type->form == FORM_FLOAT ? (int64) (uint32) value
																 : (int64) (int32) value;
		default:
			return (int64) value;
	}
}

/* As fetch_att() makes datums: the narrower types sign-extended, whatever the type's own sign. */
Datum
column_type_from_int(const ColumnType *type, int64 value)
{
	switch (type->length)
	{
		case 1:
			return CharGetDatum((char) value);
		case 2:
			return Int16GetDatum((int16) value);
		case 4:
			return Int32GetDatum((int32) value);
		default:
			return Int64GetDatum(value);
	}
}

/*
 * Are there as many bytes as a numeric's functions read without looking at the
 * length?  A header of 2 bytes (short form, NaN, infinities) or 4, and whole digits.
 */
static bool
is_whole_numeric(const char *bytes, uint32 length)
{
	uint16 header;

	if (length < sizeof(header) || length % 2 != 0)
		return false;
	memcpy(&header, bytes, sizeof(header));
	return (header & 0x8000) != 0 || length >= 2 * sizeof(header);
}

Datum
column_type_from_bytes(const ColumnType *type, const char *bytes, uint32 length)
{
	char *copy;

	if (type->form == FORM_NUMERIC && !is_whole_numeric(bytes, length))
		format_damaged("a value of %u bytes is no numeric", length);
	if (type->length == -1)
	{
		if ((Size) length + VARHDRSZ > MaxAllocSize)
			format_damaged("a value of %u bytes is longer than any can be", length);
		copy = palloc((Size) length + VARHDRSZ);
		SET_VARSIZE(copy, (Size) length + VARHDRSZ);
		memcpy(VARDATA(copy), bytes, length);
	}
	else if (type->length == -2)
	{
		copy = palloc((Size) length + 1);
		memcpy(copy, bytes, length);
		copy[length] = '\0';
	}
	else
	{
		if (length != (uint32) type->length)
			format_damaged("a value has %u bytes, but its type %d", length, type->length);
		copy = palloc(length);
		memcpy(copy, bytes, length);
	}
	return PointerGetDatum(copy);
}
