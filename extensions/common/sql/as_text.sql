
-- ---------------------------------------------------------------------------
-- Values that travel as text
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.as_text(value anyelement) RETURNS text
    LANGUAGE C STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'strata_as_text';
COMMENT ON FUNCTION strata.as_text(anyelement) IS
    'the value as text, whatever the settings: ISO dates, all digits';
