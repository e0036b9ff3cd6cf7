-- one eta, construction, readout, horizon and model: error against persistence, over systems and seeds
-- rmse_relative [] geometric mean over systems of rmse / rmse of persistence
-- low [] lower end of the 95 % t interval of rmse_relative over seeds, with these systems (none for a baseline)
-- high [] upper end of the 95 % t interval of rmse_relative over seeds, with these systems (none for a baseline)
-- n_cells [] runs averaged
-- n_failed [] runs without a number; they are in no average
WITH ok AS (
    SELECT *, ln(rmse_relative) AS log_error, ln(rmse_relative)
        - avg(ln(rmse_relative)) OVER (PARTITION BY system, eta, construction, readout, horizon, model) AS residual
    FROM forecast WHERE rmse_relative > 0
), pooled AS (
    SELECT construction, readout, horizon, sum(residual ** 2) AS squares,
        count(*) - count(DISTINCT (system, eta, model)) AS df
    FROM ok WHERE model NOT IN (FROM baselines) GROUP BY ALL
), cell AS (
    SELECT eta, construction, readout, horizon, model, avg(ln(rmse_relative)) FILTER (rmse_relative > 0) AS log_error,
        count(*) FILTER (rmse_relative > 0) AS n_cells,
        count(*) FILTER (rmse_relative IS NULL OR rmse_relative <= 0) AS n_failed
    FROM forecast GROUP BY ALL
), interval AS (
    SELECT cell.*, CASE WHEN model NOT IN (FROM baselines) THEN t * sqrt(squares / pooled.df / n_cells) END AS half_width
    FROM cell
    LEFT JOIN pooled USING (construction, readout, horizon)
    LEFT JOIN t_quantiles ON t_quantiles.df = least(pooled.df, 1000)
)
SELECT eta, construction, readout, horizon, model, exp(log_error) AS rmse_relative,
    exp(log_error - half_width) AS low,
    exp(log_error + half_width) AS high, n_cells, n_failed
FROM interval
ORDER BY ALL
