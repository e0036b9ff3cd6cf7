-- one eta of the input, eta of the target and model: error against persistence; equal etas are those of the table forecast
-- rmse_relative [] geometric mean over systems and seeds of rmse / rmse of persistence
-- low [] lower end of the 95 % t interval of rmse_relative over seeds, with these systems; residual variance pooled over all cells
-- high [] upper end of the 95 % t interval of rmse_relative
-- n_cells [] runs averaged
-- n_failed [] runs without a number; they are in no average
WITH every AS (
    SELECT system, eta, eta_target, construction, model, readout, horizon, seed, rmse_relative FROM crossed
    UNION ALL
    SELECT system, eta, eta AS eta_target, construction, model, readout, horizon, seed, rmse_relative
    FROM forecast
    WHERE (system, construction, model, readout, horizon) IN (
        SELECT (system, construction, model, readout, horizon) FROM crossed
    ) AND eta IN (SELECT eta FROM crossed)
), ok AS (
    SELECT *, ln(rmse_relative) - avg(ln(rmse_relative))
        OVER (PARTITION BY system, eta, eta_target, construction, readout, horizon, model) AS residual
    FROM every WHERE rmse_relative > 0
), pooled AS (
    SELECT construction, readout, horizon, sum(residual ** 2) AS squares,
        nullif(count(*) - count(DISTINCT (system, eta, eta_target, model)), 0) AS df
    FROM ok GROUP BY ALL
), cell AS (
    SELECT eta, eta_target, construction, readout, horizon, model,
        avg(ln(rmse_relative)) FILTER (rmse_relative > 0) AS log_error,
        count(*) FILTER (rmse_relative > 0) AS n_cells,
        count(*) FILTER (rmse_relative IS NULL OR rmse_relative <= 0) AS n_failed
    FROM every GROUP BY ALL
)
SELECT eta, eta_target, construction, readout, horizon, model, exp(log_error) AS rmse_relative,
    exp(log_error - t * sqrt(squares / pooled.df / n_cells)) AS low,
    exp(log_error + t * sqrt(squares / pooled.df / n_cells)) AS high, n_cells, n_failed
FROM cell
LEFT JOIN pooled USING (construction, readout, horizon)
LEFT JOIN t_quantiles ON t_quantiles.df = least(pooled.df, 1000)
ORDER BY ALL
