-- one system, eta, construction, readout, horizon, seed and pair of architectures, the first before the second in the alphabet
-- pair [] A-B: architecture A against architecture B, or against persistence, which needs no seed
-- advantage [] log(rmse of B / rmse of A): positive where A has the lower error
-- mu [] task continuity of the observations (16 channels, raw)
SELECT a.system, a.eta, a.construction, a.readout, a.horizon, a.seed, a.model || '-' || b.model AS pair,
    ln(b.rmse / a.rmse) AS advantage, m.mu
FROM forecast AS a
JOIN forecast AS b USING (system, eta, construction, readout, horizon, seed)
LEFT JOIN mixtures AS m USING (system, eta, construction)
WHERE a.model < b.model AND a.rmse > 0 AND b.rmse > 0
    AND a.model NOT IN (FROM baselines) AND b.model NOT IN (FROM baselines)
UNION ALL
SELECT a.system, a.eta, a.construction, a.readout, a.horizon, a.seed, a.model || '-persistence' AS pair,
    -ln(a.rmse_relative) AS advantage, m.mu
FROM forecast AS a
LEFT JOIN mixtures AS m USING (system, eta, construction)
WHERE a.rmse_relative > 0 AND a.model NOT IN (FROM baselines)
ORDER BY ALL
