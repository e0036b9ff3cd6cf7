-- one system, eta, construction, readout, horizon and model: error over seeds
-- rmse [sd of the increment] geometric mean of rmse over seeds
-- rmse_relative [] geometric mean over seeds of rmse / rmse of persistence
-- low [sd of the increment] lower end of the 95 % t interval of rmse (none for a baseline); residual variance of log errors pooled over all cells
-- high [sd of the increment] upper end of the 95 % t interval of rmse
-- n_seeds [] runs averaged
-- n_failed [] runs without a number; they are in no average
WITH ok AS (
    SELECT *, ln(rmse) AS log_error,
        ln(rmse) - avg(ln(rmse)) OVER (PARTITION BY system, eta, construction, readout, horizon, model) AS residual
    FROM forecast WHERE rmse > 0
), pooled AS (
    SELECT construction, readout, horizon, sum(residual ** 2) AS squares,
        count(*) - count(DISTINCT (system, eta, model)) AS df
    FROM ok WHERE model NOT IN (FROM baselines) GROUP BY ALL
), cell AS (
    SELECT system, eta, construction, readout, horizon, model,
        avg(ln(rmse)) FILTER (rmse > 0) AS log_error, avg(ln(rmse_relative)) FILTER (rmse_relative > 0) AS log_relative,
        count(*) FILTER (rmse > 0) AS n_seeds, count(*) FILTER (rmse IS NULL OR rmse <= 0) AS n_failed
    FROM forecast GROUP BY ALL
), interval AS (
    SELECT cell.*, CASE WHEN model NOT IN (FROM baselines) THEN t * sqrt(squares / pooled.df / n_seeds) END AS half_width
    FROM cell
    LEFT JOIN pooled USING (construction, readout, horizon)
    LEFT JOIN t_quantiles ON t_quantiles.df = least(pooled.df, 1000)
)
SELECT system, eta, construction, readout, horizon, model, exp(log_error) AS rmse,
    exp(log_error - half_width) AS low, exp(log_error + half_width) AS high,
    exp(log_relative) AS rmse_relative, n_seeds, n_failed
FROM interval
ORDER BY ALL
