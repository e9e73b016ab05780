
-- ---------------------------------------------------------------------------
-- Slices of replicated rows
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.owns(relation text, key anyelement) RETURNS boolean
    LANGUAGE C STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'strata_owns';
COMMENT ON FUNCTION strata.owns(text, anyelement) IS
    'would a row with this distribution key be on this worker?';
