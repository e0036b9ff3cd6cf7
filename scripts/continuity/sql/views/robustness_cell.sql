-- one dataset, horizon, host, storage, weight, beta, router weight and perturbed input: error and memory over seeds
-- mse [squared sd of the channel] geometric mean of mse over seeds
-- mse_rise [] geometric mean over seeds of mse over mse on the same windows unperturbed, less 1
-- n_seeds [] runs averaged
WITH clean AS (
    SELECT dataset, horizon, host, storage, weight, beta, router_weight, seed, mse AS clean
    FROM robustness WHERE perturbation = 'none'
)
SELECT dataset, horizon, host, storage, weight, beta, router_weight, perturbation, level, "where",
    exp(avg(ln(mse))) AS mse, exp(avg(ln(mse / clean))) - 1 AS mse_rise, avg(violation) AS violation,
    avg(state_norm) AS state_norm, count(mse) AS n_seeds
FROM robustness JOIN clean USING (dataset, horizon, host, storage, weight, beta, router_weight, seed)
GROUP BY ALL
ORDER BY ALL
